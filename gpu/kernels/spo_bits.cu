/* spo_bits: the bit arrays of rectangle queries over a block of tuples, and the number of bits that are set.
 *
 * SPO-Join's bit-array phase (section 3.4): a query marks the tuples whose ranks of both keys are in its ranges. ranks[i]
 * is the tuple at position i of the block: the rank of key A in the low 16 bits, that of key B in the high 16 bits. Query
 * q has six numbers, boxes[k * m + q]: low and high rank of A, low and high rank of B, first and last position that it
 * sees; each range excludes its high end. Bit i % 32 of bits[i / 32 * m + q] says whether tuple i matches.
 * counts[t * m + q] is the number of matches among the TILE positions from t * TILE on: their sum over t is the query's
 * count, without atomics. The paper sets bits of tuple after tuple in order of a key. Here a work item compares the ranks
 * of a tile: neighbouring items have the same tile and different queries, so they read each rank together.
 *
 * Limits: n <= 65,536, so that ranks fit 16 bits; low <= high in every range, high <= n. A position without a live tuple
 * has the rank 65,535, which no range of such a block contains. Without `want`, bits are not written.
 */
#include "portable.h"

#define TILE 1024

KERNEL spo_bits(GLOBAL const U32 *RESTRICT ranks, GLOBAL const U32 *RESTRICT boxes, GLOBAL U32 *RESTRICT bits,
                GLOBAL U32 *RESTRICT counts, U32 n, U32 m, U32 want)
{
    U32 item = GROUP_ID * GROUP + LOCAL_ID;
    U32 tile = m ? item / m : n;
    if (tile >= n / TILE + (n % TILE != 0))
        return;
    U32 q = item - tile * m;
    U32 a_low = boxes[q], a_width = boxes[m + q] - a_low;
    U32 b_low = boxes[2 * m + q], b_width = boxes[3 * m + q] - b_low;
    U32 seen = boxes[4 * m + q], width = boxes[5 * m + q] - seen;
    U32 stop = n - tile * TILE < TILE ? n : tile * TILE + TILE;
    U32 count = 0;
    for (U32 first = tile * TILE; first < stop; first += 32) {
        U32 found = 0;
        U32 end = stop - first < 32 ? stop : first + 32;
        for (U32 i = first; i < end; i++) {
            U32 both = ranks[i];
            U32 hit = ((both & 0xFFFF) - a_low < a_width) & ((both >> 16) - b_low < b_width) & (i - seen < width);
            found |= hit << (i - first);
            count += hit;
        }
        if (want)
            bits[(U64)(first / 32) * m + q] = found;
    }
    counts[item] = count;
}
