// Tests of the shim; prints the first check that fails.

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "ap_int.h"
#include "hls_stream.h"

#define CHECK(condition) \
    if (!(condition)) { \
        std::printf("%d: %s\n", __LINE__, #condition); \
        std::exit(1); \
    }

namespace {

void numbers_wrap_at_their_width() {
    ap_uint<4> small = 15;
    small += 2;
    CHECK(small == 1);
    small -= 3;
    CHECK(small == 14);
    ap_uint<33> sum = ap_uint<32>(0xFFFFFFFF) + ap_uint<32>(1);
    CHECK(sum == 0x100000000u);
    CHECK(sizeof(ap_uint<64>) == 8 && sizeof(ap_uint<32>) == 4 && sizeof(ap_uint<9>) == 2 && sizeof(ap_uint<512>) == 64);
}

void wide_numbers_are_read_and_written_in_parts() {
    ap_uint<512> wide = ap_uint<512>();
    wide.range(95, 64) = 0x12345678;
    wide.range(127, 96) = 0x9ABCDEF0;
    CHECK(std::uint64_t(wide.range(127, 64)) == 0x9ABCDEF012345678u);
    wide.range(127, 64) = 5;
    CHECK(wide.range(95, 64) == 5 && wide.range(127, 96) == 0 && wide.range(63, 0) == 0 && wide.range(191, 128) == 0);
}

// A stream of depth two transfers a thousand values in order, with a faster source or a faster sink.
void short_streams_carry_long_ones() {
    hls::stream<int, 2> first, second;
    std::vector<int> seen;
    {
        csim::Region region;
        region.start([&] {
            for (int i = 0; i < 1000; i++) seen.push_back(second.read());
        });
        region.start([&] {
            for (int i = 0; i < 1000; i++) {
                if (i % 7 == 0) csim::pause();
                second.write(first.read() + 1);
            }
        });
        region.start([&] {
            for (int i = 0; i < 1000; i++) first.write(i);
        });
    }
    CHECK(seen.size() == 1000);
    for (int i = 0; i < 1000; i++) CHECK(seen[i] == i + 1);
    CHECK(first.empty() && !first.full());
}

void regions_lie_within_processes() {
    hls::stream<int, 2> in, middle, out;
    int sum = 0;
    {
        csim::Region region;
        region.start([&] {
            for (int i = 0; i < 100; i++) in.write(i);
        });
        region.start([&] {
            csim::Region inner;
            inner.start([&] {
                for (int i = 0; i < 100; i++) middle.write(in.read());
            });
            inner.start([&] {
                for (int i = 0; i < 100; i++) out.write(middle.read());
            });
        });
        region.start([&] {
            for (int i = 0; i < 100; i++) sum += out.read();
        });
    }
    CHECK(sum == 4950);
}

// Deadlocks: one process waits for a value that is never written; another writes more values than the depth.
void a_standstill_is_told_and_forgotten() {
    for (int turn = 0; turn < 3; turn++) {
        bool told = false;
        try {
            hls::stream<int, 2> never, full;
            csim::Region region;
            region.start([&] { never.read(); });
            region.start([&] {
                for (int i = 0; i < 3; i++) full.write(i);
            });
        } catch (const csim::Standstill&) {
            told = true;
        }
        CHECK(told);
        short_streams_carry_long_ones();
    }
}

}  // namespace

int main() {
    numbers_wrap_at_their_width();
    wide_numbers_are_read_and_written_in_parts();
    short_streams_carry_long_ones();
    regions_lie_within_processes();
    a_standstill_is_told_and_forgotten();
    return 0;
}
