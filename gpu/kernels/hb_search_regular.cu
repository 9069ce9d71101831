/* hb_search_regular: searches inner levels `from` .. `levels` - 1 of a regular HB+-Tree; leaves[q] is the leaf line.
 *
 * Thesis, appendix A, 4.1, 5.2 and 5.3. A node is an index line (the last key of each key line), PER_LINE lines of keys
 * and PER_LINE lines of children, words like the keys: three 64-byte transfers per level. `nodes` holds the upper
 * levels first, numbered from the root, 0. The nodes of the last level start at word `last`, are numbered from 0 and
 * have no children: last-level node i belongs to big leaf i, whose lines are i * PER_LINE * PER_LINE + slot. Query q
 * starts at node at[q] of level `from`; at level 0 all queries start at the root, and `at` is not read.
 *
 * Limits: m <= 2^31; from <= levels (equal: leaves[q] = at[q]); the tree has at most 2^31 keys; at[q] is a node of its
 * level. The largest word is a legal query: in every line the search takes the first slot that holds it.
 */
#include "portable.h"
#include "line_search.h"

#define KEYS (PER_LINE * PER_LINE)

/* The child slot of a query in a node: search the index line, then the key line it selects. */
HELPER U32 search_node(GLOBAL const WORD *node, WORD query, LOCAL U32 *team_memory)
{
    U32 line = search_line(node, query, team_memory);
    return line * PER_LINE + search_line(node + (1 + line) * PER_LINE, query, team_memory);
}

KERNEL hb_search_regular(GLOBAL const WORD *RESTRICT nodes, GLOBAL const WORD *RESTRICT queries,
                         GLOBAL const U32 *RESTRICT at, GLOBAL U32 *RESTRICT leaves, U32 m, U32 from, U32 levels,
                         U32 last)
{
    TEAM_MEMORY;
    if (m == 0)
        return;
    U32 mine = GROUP_ID * QUERIES + LOCAL_ID / TEAM;
    U32 q = mine < m ? mine : m - 1; /* teams past the end repeat the last query: all items join every search */
    WORD query = queries[q];
    U32 node = from == 0 ? 0 : at[q];
    for (U32 level = from; level < levels; level++) {
        /* One search for both kinds of nodes: some compilers cannot handle barriers inside conditions. */
        int is_last = level + 1 == levels;
        GLOBAL const WORD *here = nodes + (is_last ? last + node * (PER_LINE + KEYS) : node * (PER_LINE + 2 * KEYS));
        U32 slot = search_node(here, query, team_memory);
        node = is_last ? node * KEYS + slot : (U32)here[PER_LINE + KEYS + slot];
    }
    if (mine < m && LOCAL_ID % TEAM == 0)
        leaves[mine] = node;
}
