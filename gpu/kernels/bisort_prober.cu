/* bisort_prober: finds the positions of the words in each band low[j] .. high[j] (inclusive) in a sorted run.
 *
 * starts[j] is the number of words < low[j], ends[j] the number of words <= high[j]: the result format
 * <id_start, id_end> of BI-Sort (PanJoin, III-D, III-E, III-F2; partitioner and prober of section IV). A search in the
 * sampled index gives the partition, a second search the position inside it. The paper scans sorted bounds and
 * partitions sequentially. On a GPU each band has its own work item; because the bounds are sorted, neighbouring items
 * read the same entries at the same time, so most reads hit a cache line that was just fetched.
 *
 * Limits: n, m <= 2^31; `index` is the output of bisort_indexer for these n words and this step; starts and ends
 * overlap no other buffer. A band with low > high is legal: start and end are then unrelated positions. The largest
 * word is a legal word and a legal bound, so bounds are never incremented (the paper's [v, v+) would wrap).
 */
#include "portable.h"

/* The first position in begin .. end whose word is >= the bound; with `through`, > the bound. */
HELPER U32 first_past(GLOBAL const WORD *words, U32 begin, U32 end, WORD bound, int through)
{
    while (begin < end) {
        U32 middle = begin + (end - begin) / 2;
        WORD word = words[middle];
        if (word < bound || (through && word == bound))
            begin = middle + 1;
        else
            end = middle;
    }
    return begin;
}

HELPER U32 search(GLOBAL const WORD *words, GLOBAL const WORD *index, U32 n, U32 step, WORD bound, int through)
{
    U32 partitions = first_past(index, 0, n / step + (n % step != 0), bound, through);
    if (partitions == 0)
        return 0;
    /* The result is after the first word of the last partition that starts before the bound, and not past its end. */
    U32 first = (partitions - 1) * step;
    U32 end = n - first < step ? n : first + step;
    return first_past(words, first + 1, end, bound, through);
}

KERNEL bisort_prober(GLOBAL const WORD *RESTRICT words, GLOBAL const WORD *RESTRICT index,
                     GLOBAL const WORD *RESTRICT low, GLOBAL const WORD *RESTRICT high, GLOBAL U32 *RESTRICT starts,
                     GLOBAL U32 *RESTRICT ends, U32 n, U32 step, U32 m)
{
    U32 j = GROUP_ID * GROUP + LOCAL_ID;
    if (j < m) {
        starts[j] = search(words, index, n, step, low[j], 0);
        ends[j] = search(words, index, n, step, high[j], 1);
    }
}
