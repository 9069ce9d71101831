/* bisort_indexer: samples every `step`-th word of a run: index[i] = words[i * step], ceil(n / step) entries.
 *
 * BI-Sort's index array over the main array (PanJoin, III-D; the indexer of section IV, which runs after all mergers
 * have ended). An entry is the first word of a partition of `step` words.
 *
 * Limits: n <= 2^31, 1 <= step <= 2^31; one work item per entry, items past the last entry do nothing.
 */
#include "portable.h"

KERNEL bisort_indexer(GLOBAL const WORD *RESTRICT words, GLOBAL WORD *RESTRICT index, U32 n, U32 step)
{
    U32 i = GROUP_ID * GROUP + LOCAL_ID;
    if (i < n / step + (n % step != 0))
        index[i] = words[i * step];
}
