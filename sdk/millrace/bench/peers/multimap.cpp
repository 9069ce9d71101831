// The peer of index="btree": a band join of two streams over std::multimap, one tuple at a time.
//
// For each tuple in order of arrival: erase the other side's expired tuples (through stored iterators), scan the other
// side's tree over [x - eps, x + eps], sort the partners found by seq, append the pairs, insert the tuple. Output vectors
// keep their capacity between pushes and are read in place. Keys are int64; bounds saturate.

#include <algorithm>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <vector>

namespace {

using Tree = std::multimap<std::int64_t, std::int64_t>;

struct Side {
    Tree tree;                          // key to seq
    std::deque<Tree::iterator> arrived; // oldest first
    std::int64_t next = 0;              // the seq of the next tuple

    void insert(std::int64_t key) { arrived.push_back(tree.emplace(key, next++)); }

    void expire(std::size_t window) {
        while (arrived.size() > window) {
            tree.erase(arrived.front());
            arrived.pop_front();
        }
    }
};

struct Join {
    std::size_t window;
    std::int64_t eps;
    Side sides[2];
    std::vector<std::int64_t> found, pairs[2];
};

std::int64_t plus(std::int64_t x, std::int64_t y) {
    std::int64_t sum;
    if (!__builtin_add_overflow(x, y, &sum)) return sum;
    return y < 0 ? std::numeric_limits<std::int64_t>::min() : std::numeric_limits<std::int64_t>::max();
}

void take(Join &join, int side, std::int64_t key) {
    Side &own = join.sides[side], &other = join.sides[1 - side];
    other.expire(join.window);
    const std::int64_t high = plus(key, join.eps);
    join.found.clear();
    for (auto at = other.tree.lower_bound(plus(key, -join.eps)); at != other.tree.end() && at->first <= high; ++at)
        join.found.push_back(at->second);
    std::sort(join.found.begin(), join.found.end());
    for (const std::int64_t partner : join.found) {
        join.pairs[side].push_back(own.next);
        join.pairs[1 - side].push_back(partner);
    }
    own.insert(key);
}

} // namespace

extern "C" {

void *multimap_open(std::int64_t window, std::int64_t eps) {
    return new Join{static_cast<std::size_t>(window), eps, {}, {}, {}};
}

void multimap_close(void *join) { delete static_cast<Join *>(join); }

// Inserts tuples into a side's window without searching partners.
void multimap_fill(void *handle, int side, const std::int64_t *keys, std::int64_t rows) {
    Join &join = *static_cast<Join *>(handle);
    for (std::int64_t i = 0; i < rows; ++i) join.sides[side].insert(keys[i]);
    join.sides[side].expire(join.window);
}

// Pushes tuples in the given order (0: the next r, 1: the next s); returns the number of pairs.
std::int64_t multimap_push(void *handle, const std::int64_t *r, const std::int64_t *s, const std::uint8_t *order,
                           std::int64_t rows) {
    Join &join = *static_cast<Join *>(handle);
    const std::int64_t *keys[2] = {r, s};
    join.pairs[0].clear();
    join.pairs[1].clear();
    for (std::int64_t i = 0; i < rows; ++i) take(join, order[i], *keys[order[i]]++);
    return static_cast<std::int64_t>(join.pairs[0].size());
}

// The seqs of one side of the last push's pairs, valid until the next push.
const std::int64_t *multimap_pairs(void *handle, int side) { return static_cast<Join *>(handle)->pairs[side].data(); }
}
