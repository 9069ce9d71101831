/* bisort_merger: merges two runs, each sorted ascending by word, into one; stable: on equal words, a comes before b.
 *
 * BI-Sort's merge of the insertion buffer into the main array (PanJoin, III-D, III-E; the merger of section IV). The
 * paper's merger compares two streams one tuple at a time; here the output is cut into tiles of GROUP * ITEMS rows, and
 * a binary search along each cut's diagonal (merge path) finds how many rows of a come before it. A group then loads
 * its part of a and b into shared memory, cuts it again for its work items, and each item merges ITEMS rows. Items
 * write source positions, not rows, so that the final copy writes adjacent rows coalesced. The copy also samples every
 * step-th word of the merged run into the index.
 *
 * Limits: a_n + b_n <= 2^31; out_words, out_ids and index overlap no other buffer; either run may be empty. Any word is
 * legal, including the largest: runs end by position, not by a sentinel value.
 */
#include "portable.h"

#define TILE (GROUP * ITEMS)
#if TILE > 65535
#error "a place inside a tile must fit 16 bits"
#endif

/* How many rows of a are among the first `diagonal` rows of the merged run. */
#define MERGE_PATH(NAME, SPACE)                                                                                        \
    HELPER U32 NAME(SPACE const WORD *a, U32 a_n, SPACE const WORD *b, U32 b_n, U32 diagonal)                          \
    {                                                                                                                  \
        U32 low = diagonal > b_n ? diagonal - b_n : 0;                                                                 \
        U32 high = diagonal < a_n ? diagonal : a_n;                                                                    \
        while (low < high) {                                                                                           \
            U32 middle = low + (high - low) / 2;                                                                       \
            if (a[middle] <= b[diagonal - 1 - middle])                                                                 \
                low = middle + 1;                                                                                      \
            else                                                                                                       \
                high = middle;                                                                                         \
        }                                                                                                              \
        return low;                                                                                                    \
    }

MERGE_PATH(merge_path_global, GLOBAL)
MERGE_PATH(merge_path_local, LOCAL)

KERNEL bisort_merger(GLOBAL const WORD *RESTRICT a_words, GLOBAL const U32 *RESTRICT a_ids,
                     GLOBAL const WORD *RESTRICT b_words, GLOBAL const U32 *RESTRICT b_ids,
                     GLOBAL WORD *RESTRICT out_words, GLOBAL U32 *RESTRICT out_ids,
                     GLOBAL WORD *RESTRICT index, U32 a_n, U32 b_n, U32 step)
{
    SHARED WORD tile[TILE]; /* this tile's rows of a, then those of b */
    SHARED U16 place[TILE]; /* for each output row: its position in `tile` */
    SHARED U32 cut[2];      /* how many rows of a come before the tile's first row, and before its end */

    U32 first = GROUP_ID * TILE;
    U32 left = a_n + b_n - first;
    U32 length = left < TILE ? left : TILE;
    /* A loop, not a condition: a device may have groups of one work item. */
    for (U32 i = LOCAL_ID; i < 2; i += GROUP)
        cut[i] = merge_path_global(a_words, a_n, b_words, b_n, first + i * length);
    BARRIER();

    U32 a_first = cut[0];
    U32 a_length = cut[1] - a_first;
    U32 b_first = first - a_first;
    U32 b_length = length - a_length;
    for (U32 i = LOCAL_ID; i < length; i += GROUP)
        tile[i] = i < a_length ? a_words[a_first + i] : b_words[b_first + (i - a_length)];
    BARRIER();

    U32 begin = LOCAL_ID * ITEMS < length ? LOCAL_ID * ITEMS : length;
    U32 end = length - begin < ITEMS ? length : begin + ITEMS;
    U32 a = merge_path_local(tile, a_length, tile + a_length, b_length, begin);
    U32 b = a_length + (begin - a);
    for (U32 i = begin; i < end; i++) {
        if (b == length || (a < a_length && tile[a] <= tile[b]))
            place[i] = (U16)a++;
        else
            place[i] = (U16)b++;
    }
    BARRIER();

    for (U32 i = LOCAL_ID; i < length; i += GROUP) {
        U32 from = place[i];
        out_words[first + i] = tile[from];
        if ((first + i) % step == 0)
            index[(first + i) / step] = tile[from];
        out_ids[first + i] = from < a_length ? a_ids[a_first + from] : b_ids[b_first + (from - a_length)];
    }
}
