/* hb_lookup: a complete lookup in an implicit HB+-Tree on the device: inner levels, then the leaf line.
 *
 * For trees whose L-segment also fits into device memory. found[q] is the position, in key order, of the first key
 * >= queries[q] (n if there is none); the host compares that key with the query. Inner levels as in hb_search_implicit;
 * leaf line i holds the keys from position i * PER_LINE on (thesis, appendix A, 4.1 and 5.3).
 *
 * Limits: m, n <= 2^31. n gives the end of the keys, not the padding of the last line, because the largest word is a
 * legal key and a legal query.
 */
#include "portable.h"
#include "line_search.h"

KERNEL hb_lookup(GLOBAL const WORD *RESTRICT nodes, GLOBAL const U32 *RESTRICT offsets,
                 GLOBAL const WORD *RESTRICT leaf_words, GLOBAL const WORD *RESTRICT queries,
                 GLOBAL U32 *RESTRICT found, U32 m, U32 levels, U32 n)
{
    TEAM_MEMORY;
    if (m == 0)
        return;
    U32 mine = GROUP_ID * QUERIES + LOCAL_ID / TEAM;
    U32 q = mine < m ? mine : m - 1; /* teams past the end repeat the last query: all items join every search */
    WORD query = queries[q];
    U32 node = 0;
    for (U32 level = 0; level < levels; level++)
        node = node * PER_LINE + search_line(nodes + (offsets[level] + node) * PER_LINE, query, team_memory);

    U32 line = node * PER_LINE;
    U32 first = line + LOCAL_ID % TEAM * SHARE;
    U32 place = first;
    for (U32 i = first; i < first + SHARE; i++)
        place += i < n && leaf_words[i] < query;
    U32 position = line + first_vote(place < first + SHARE, place - line, team_memory);
    if (mine < m && LOCAL_ID % TEAM == 0)
        found[mine] = position;
}
