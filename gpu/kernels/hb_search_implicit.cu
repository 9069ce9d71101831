/* hb_search_implicit: searches inner levels `from` .. `levels` - 1 of an implicit HB+-Tree; leaves[q]: the leaf line.
 *
 * Thesis, appendix A, 5.2, 5.3 and snippet 3. `nodes` holds the I-segment, a line of 64 bytes per node, the top level
 * first; level l starts at node offsets[l]. Child i of node j is node j * PER_LINE + i of the next level (fan-out 8 or
 * 16: the last word of a node is the largest). Query q starts at node at[q] of level `from`: the host has searched the
 * levels above. At level 0 all queries start at the root, and `at` is not read. A team of PER_LINE work items processes
 * a query, so that a node is read by one 64-byte transfer.
 *
 * Limits: m <= 2^31; from <= levels (equal: leaves[q] = at[q]); the tree has at most 2^31 keys; at[q] is a node of its
 * level. The largest word is a legal query: in every node the search takes the first slot that holds it.
 */
#include "portable.h"
#include "line_search.h"

KERNEL hb_search_implicit(GLOBAL const WORD *RESTRICT nodes, GLOBAL const U32 *RESTRICT offsets,
                          GLOBAL const WORD *RESTRICT queries, GLOBAL const U32 *RESTRICT at,
                          GLOBAL U32 *RESTRICT leaves, U32 m, U32 from, U32 levels)
{
    TEAM_MEMORY;
    if (m == 0)
        return;
    U32 mine = GROUP_ID * QUERIES + LOCAL_ID / TEAM;
    U32 q = mine < m ? mine : m - 1; /* teams past the end repeat the last query: all items join every search */
    WORD query = queries[q];
    U32 node = from == 0 ? 0 : at[q];
    for (U32 level = from; level < levels; level++)
        node = node * PER_LINE + search_line(nodes + (offsets[level] + node) * PER_LINE, query, team_memory);
    if (mine < m && LOCAL_ID % TEAM == 0)
        leaves[mine] = node;
}
