/* bisort_prober: where the words inside each band low[j] .. high[j] stand in a sorted run, both ends included.
 *
 * starts[j] is the number of words < low[j], ends[j] the number of words <= high[j]: the result format
 * <id_start, id_end> of BI-Sort (PanJoin, III-D, III-E, III-F2; partitioner and prober of section IV). The sampled
 * index gives the partition, a second search the place inside it. The paper walks sorted bounds along the partitions
 * one after the other; on a GPU each bound has a work item of its own, and the bounds being sorted makes neighbours
 * read the same entries at the same time, so most reads meet a cache line just fetched.
 *
 * Limits: n, m <= 2^31; `index` is what bisort_indexer made of these n words with this step; starts and ends overlap no
 * other buffer. A band with low > high is nothing special: start and end are then two unrelated places. The largest
 * word is a legal word and a legal bound, so nothing is ever added to a bound (the paper's [v, v+) would wrap).
 */
#include "portable.h"

/* The first place in begin .. end whose word is not below the bound; with `through` those equal to it are passed too. */
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
    /* The answer is behind the first word of the last partition that begins before it, and not past its end. */
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
