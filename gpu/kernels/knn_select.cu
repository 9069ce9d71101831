/* knn_select: for each query the `want` points of a run that are nearest in float32 arithmetic.
 *
 * The host computes exact distances of the selected points and decides whether they include the k nearest
 * (host/knn/device.py, which states the error margin). A run (host/knn/run.py) is blocks of BLOCK points along a Hilbert
 * curve, dimension by dimension, with boxes over them, in levels of FANOUT children: box b of level l covers the blocks
 * from b * FANOUT^l on, and lies at boxes[(offsets[l] + b) * 2 * dims], low and high end of each dimension.
 * queries[i * m + q] is coordinate i of query q; behind the coordinates is its limit: points at that squared distance or
 * beyond are not selected. spans has four numbers per query: the first and last slot that it sees (a group of points is
 * consecutive), and the first and last position; each excludes its end. squares[i * m + q] and ids[i * m + q] are a heap
 * with the farthest selected point on top: squared distance and slot. Empty entries have the limit and NONE.
 *
 * A work item searches for one query: first the block that it finds by descending to the nearest box, then all blocks
 * whose boxes are not too far, in the order of the curve. Every point that is not selected has a squared distance of at
 * least the top's. Multiplication and addition may be fused for points and not for boxes: a box is skipped only if it is
 * farther than the top by more than both roundings (NEARER is 1 - 2^-18; 9 roundings of 2^-24 each way are less).
 *
 * Limits: n * dims, m * (dims + 1), m * want <= 2^31; want >= 1; slots and positions of a run fit 31 bits.
 */
#include "portable.h"

#define BLOCK_BITS 5
#define BLOCK (1 << BLOCK_BITS)
#define FANOUT_BITS 4
#define FANOUT (1 << FANOUT_BITS)
#define NEARER 0.99999618f
#define NONE 0xFFFFFFFFu

/* The box of a level that covers a slot. */
HELPER U32 box_of(U32 slot, U32 level)
{
    return slot >> (BLOCK_BITS + FANOUT_BITS * level);
}

/* The squared distance from a query to a box; `query` and `stride`: where its coordinates are. */
HELPER float box_square(GLOBAL const float *box, GLOBAL const float *query, U32 stride, U32 dims)
{
    float sum = 0;
    ROLLED
    for (U32 i = 0; i < dims; i++) {
        float at = query[i * stride];
        float below = box[2 * i] - at, above = at - box[2 * i + 1];
        float gap = below > above ? below : above;
        gap = gap > 0 ? gap : 0;
        sum += gap * gap;
    }
    return sum;
}

/* Replace the top of a query's heap by a nearer point; return the new top's squared distance. */
HELPER float replace_top(GLOBAL float *squares, GLOBAL U32 *ids, U32 stride, U32 want, float square, U32 slot)
{
    U32 at = 0;
    ROLLED
    for (U32 child = 1; child < want; child = 2 * at + 1) {
        float larger = squares[child * stride];
        if (child + 1 < want && squares[(child + 1) * stride] > larger) {
            child++;
            larger = squares[child * stride];
        }
        if (!(larger > square))
            break;
        squares[at * stride] = larger;
        ids[at * stride] = ids[child * stride];
        at = child;
    }
    squares[at * stride] = square;
    ids[at * stride] = slot;
    return squares[0];
}

KERNEL knn_select(GLOBAL const float *RESTRICT points, GLOBAL const U32 *RESTRICT positions,
                  GLOBAL const float *RESTRICT boxes, GLOBAL const U32 *RESTRICT offsets,
                  GLOBAL const float *RESTRICT queries, GLOBAL const U32 *RESTRICT spans,
                  GLOBAL float *RESTRICT squares, GLOBAL U32 *RESTRICT ids, U32 n, U32 dims, U32 levels, U32 m, U32 want)
{
    U32 q = GROUP_ID * GROUP + LOCAL_ID;
    if (q >= m)
        return;
    float bound = queries[dims * m + q];
    ROLLED
    for (U32 i = 0; i < want; i++) {
        squares[i * m + q] = bound;
        ids[i * m + q] = NONE;
    }
    U32 first = spans[q], stop = spans[m + q] < n ? spans[m + q] : n;
    if (first >= stop)
        return;

    U32 home = 0;
    ROLLED
    for (U32 level = levels; level-- > 0;) {
        U32 low = box_of(first, level), high = box_of(stop - 1, level);
        U32 child = home * FANOUT > low ? home * FANOUT : low;
        high = high < home * FANOUT + FANOUT - 1 ? high : home * FANOUT + FANOUT - 1;
        float least = 3.0e38f;
        home = child;
        ROLLED
        for (; child <= high; child++) {
            float square = box_square(boxes + (offsets[level] + child) * 2 * dims, queries + q, m, dims);
            home = square < least ? child : home;
            least = square < least ? square : least;
        }
    }

    U32 begin = spans[2 * m + q], width = spans[3 * m + q] - begin;
    U32 level = levels - 1, box = box_of(first, level), block = home;
    while (block != NONE) {
        U32 slot = block * BLOCK > first ? block * BLOCK : first;
        U32 end = block * BLOCK + BLOCK < stop ? block * BLOCK + BLOCK : stop;
        ROLLED
        for (; slot < end; slot++) {
            if (positions[slot] - begin >= width)
                continue;
            float sum = 0;
            ROLLED
            for (U32 i = 0; i < dims; i++) {
                float gap = points[(block * dims + i) * BLOCK + slot % BLOCK] - queries[i * m + q];
                sum += gap * gap;
            }
            if (sum < bound)
                bound = replace_top(squares + q, ids + q, m, want, sum, slot);
        }
        block = NONE;
        while (block == NONE && box <= box_of(stop - 1, level)) {
            int far = box_square(boxes + (offsets[level] + box) * 2 * dims, queries + q, m, dims) * NEARER > bound;
            if (level && !far) {
                level--;
                box = box * FANOUT > box_of(first, level) ? box * FANOUT : box_of(first, level);
                continue;
            }
            block = far || box == home ? NONE : box;
            box++;
            ROLLED
            for (; level + 1 < levels && box % FANOUT == 0; box /= FANOUT)
                level++;
        }
    }
}
