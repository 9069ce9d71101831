// The peer of `OrderedIndex.update`: std::multimap from int64 keys to int64 values, one call per batch.

#include <cstdint>
#include <map>

namespace {
using Map = std::multimap<std::int64_t, std::int64_t>;
}

extern "C" {

// Builds from keys in ascending order.
void *ordered_open(const std::int64_t *keys, const std::int64_t *values, std::int64_t rows) {
    Map *map = new Map;
    for (std::int64_t i = 0; i < rows; ++i) map->emplace_hint(map->end(), keys[i], values[i]);
    return map;
}

void ordered_close(void *map) { delete static_cast<Map *>(map); }

void ordered_insert(void *handle, const std::int64_t *keys, const std::int64_t *values, std::int64_t rows) {
    Map &map = *static_cast<Map *>(handle);
    for (std::int64_t i = 0; i < rows; ++i) map.emplace(keys[i], values[i]);
}

void ordered_erase(void *handle, const std::int64_t *keys, std::int64_t rows) {
    Map &map = *static_cast<Map *>(handle);
    for (std::int64_t i = 0; i < rows; ++i) map.erase(keys[i]);
}

// The first value of each key; 0 if there is none.
void ordered_find(void *handle, const std::int64_t *keys, std::int64_t *out, std::int64_t rows) {
    const Map &map = *static_cast<Map *>(handle);
    for (std::int64_t i = 0; i < rows; ++i) {
        const auto at = map.lower_bound(keys[i]);
        out[i] = at != map.end() && at->first == keys[i] ? at->second : 0;
    }
}
}
