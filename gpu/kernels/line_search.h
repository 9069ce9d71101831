/* A team of work items searches one line of 64 bytes together, each comparing one word (thesis, appendix A, 5.3).
 *
 * Three methods to find the first word of the line that is >= the query:
 *   ballot    CUDA: one instruction collects the votes of a warp, one finds the first vote. No memory, no barrier.
 *   subgroup  OpenCL with SUBGROUP_SEARCH defined: the same with the votes of a subgroup (cl_khr_subgroup_ballot). All
 *             subgroups are full, and their size is a power of two, from TEAM to 128.
 *   barrier   OpenCL, and CUDA with BARRIER_SEARCH defined: votes go through shared memory, as in the paper's snippet 3.
 *             Each item compares its vote with its left neighbour's; the first item that votes writes its position. Two
 *             barriers are enough: a search reads the result of the previous one before its own first barrier.
 * All require every item of the group to take part in every search, with any query.
 *
 * In groups smaller than the words of a line, which some OpenCL devices require, each item searches alone.
 *
 * Included after portable.h. A kernel declares TEAM_MEMORY first and passes `team_memory` on. A group processes QUERIES
 * queries at a time, each item SHARE words. Limits: GROUP is a power of two; for ballots a multiple of 32.
 */

#define PER_LINE (512 / WORD_BITS)
#define TEAM (GROUP < PER_LINE ? 1 : PER_LINE)
#define SHARE (PER_LINE / TEAM)
#define QUERIES (GROUP / TEAM)

#if GROUP & (GROUP - 1)
#error "GROUP must be a power of two"
#endif

/* first_vote: the `place` of the first item of the team whose vote is set, PER_LINE if none is. If an item votes, all
 * later items vote too, because a line is sorted. */
#if GROUP < PER_LINE

#define TEAM_MEMORY LOCAL U32 *team_memory = 0

HELPER U32 first_vote(int vote, U32 place, LOCAL U32 *team_memory)
{
    (void)team_memory;
    return vote ? place : PER_LINE;
}

#elif defined(SUBGROUP_SEARCH)

#define TEAM_MEMORY LOCAL U32 *team_memory = 0

HELPER U32 first_vote(int vote, U32 place, LOCAL U32 *team_memory)
{
    uint4 all = sub_group_ballot(vote); /* 32 votes in each part; a team's are in one of them */
    U32 lane = (U32)get_sub_group_local_id();
    U32 part = lane < 32 ? all.x : lane < 64 ? all.y : lane < 96 ? all.z : all.w;
    U32 votes = part >> (lane % 32 / TEAM * TEAM) | 1u << TEAM; /* the bit after the team's: no item has voted */
    (void)place; /* equals the item's number in its team */
    (void)team_memory;
    return (U32)popcount((votes - 1) & ~votes); /* zeros below the lowest bit */
}

#elif defined(__OPENCL_VERSION__) || defined(BARRIER_SEARCH)

#define TEAM_MEMORY SHARED U32 team_memory[GROUP + QUERIES] /* one vote per item, one result per team */

HELPER U32 first_vote(int vote, U32 place, LOCAL U32 *team_memory)
{
    U32 lane = LOCAL_ID % TEAM;
    U32 answer = GROUP + LOCAL_ID / TEAM;
    team_memory[LOCAL_ID] = vote;
    BARRIER();
    U32 before = lane == 0 ? 0 : team_memory[LOCAL_ID - 1];
    if (vote ? !before : lane == TEAM - 1)
        team_memory[answer] = vote ? place : PER_LINE;
    BARRIER();
    return team_memory[answer];
}

#else

#if GROUP % 32
#error "ballots need whole warps: GROUP must be a multiple of 32, or define BARRIER_SEARCH"
#endif
#define TEAM_MEMORY U32 *team_memory = 0

HELPER U32 first_vote(int vote, U32 place, U32 *team_memory)
{
    U32 votes = __ballot_sync(0xffffffffu, vote) >> (LOCAL_ID % 32 / TEAM * TEAM);
    (void)place; /* equals the item's number in its team */
    (void)team_memory;
    return (U32)__ffs((int)(votes | 1u << TEAM)) - 1; /* the bit after the team's bits: no item has voted */
}

#endif

/* The first position in a node's line whose word is >= the query, else the last position: the last child takes all
 * larger keys, whatever the last word is. */
HELPER U32 search_line(GLOBAL const WORD *line, WORD query, LOCAL U32 *team_memory)
{
    U32 first = LOCAL_ID % TEAM * SHARE;
    U32 place = first;
    for (U32 i = first; i < first + SHARE; i++)
        place += i < PER_LINE - 1 && line[i] < query;
    return first_vote(place < first + SHARE, place, team_memory);
}
