// Replaces the vendor's ap_int.h: unsigned integers of any width, with only the functions that hls/ uses.
//
// A number of up to 64 bits is stored in the smallest C++ integer and converts to std::uint64_t, so sums have 64 bits. Wider numbers are
// arrays of 64-bit rows and support only `range`, of up to 64 bits at a time. The vendor's type makes sums as wide as they need. Both agree
// if a sum is stored in a variable of its width before it is compared or shifted right; the sources follow this rule.

#ifndef MILLRACE_SHIM_AP_INT_H
#define MILLRACE_SHIM_AP_INT_H

#include <cstdint>
#include <type_traits>

template <int BITS, bool WIDE = (BITS > 64)>
class ap_uint;

template <int BITS>
class ap_uint<BITS, false> {
    static_assert(BITS >= 1, "a number has at least one bit");

  public:
    using held_t = std::conditional_t<
        (BITS > 32), std::uint64_t,
        std::conditional_t<(BITS > 16), std::uint32_t, std::conditional_t<(BITS > 8), std::uint16_t, std::uint8_t>>>;

    ap_uint() = default;
    ap_uint(std::uint64_t value) : held_(static_cast<held_t>(value & MASK)) {}
    template <int OTHER>
    ap_uint(const ap_uint<OTHER, false>& other) : ap_uint(std::uint64_t(other)) {}
    operator std::uint64_t() const { return held_; }

    ap_uint& operator+=(std::uint64_t value) { return *this = ap_uint(held_ + value); }
    ap_uint& operator-=(std::uint64_t value) { return *this = ap_uint(held_ - value); }

  private:
    static constexpr std::uint64_t MASK = ~std::uint64_t(0) >> (64 - BITS);
    held_t held_;
};

template <int BITS>
class ap_uint<BITS, true> {
    static_assert(BITS % 64 == 0, "wide numbers are whole rows of 64 bits");

  public:
    // A bit range of a wide number, within one row.
    template <typename Row>
    class bits_t {
      public:
        bits_t(Row& row, int low, int width) : row_(row), low_(low), mask_(~std::uint64_t(0) >> (64 - width)) {}
        operator std::uint64_t() const { return row_ >> low_ & mask_; }
        bits_t& operator=(std::uint64_t value) {
            row_ = (row_ & ~(mask_ << low_)) | (value & mask_) << low_;
            return *this;
        }

      private:
        Row& row_;
        int low_;
        std::uint64_t mask_;
    };

    bits_t<std::uint64_t> range(int high, int low) { return {rows_[low / 64], low % 64, high - low + 1}; }
    bits_t<const std::uint64_t> range(int high, int low) const { return {rows_[low / 64], low % 64, high - low + 1}; }

  private:
    std::uint64_t rows_[BITS / 64];
};

#endif
