// Takes commands one by one: checks each, hands the slots' slices to clusters or pairs, waits for all of them, gives the result.
//
// A command with a mistake in it starts nothing; its result carries the error code and the next command is taken. An error response
// of the memory lets the command run to its end first. The slices are walked twice, one slot per cycle: once to check that they are
// ascending and whole, once to start. A PROBE loads the on-chip index unless it holds the same one and flag KEEP allows to trust it.

`default_nettype none

// Of the pointers only the lowest bits are looked at here.
/* verilator lint_off UNUSEDSIGNAL */

module bisort_sequencer #(
    // Bits of a key: 32 or 64.
    parameter KEY_W = 64,
    // Samples that fit on the chip: a power of two, 16 to 1048576.
    parameter INDEX_DEPTH = 65536,
    // Bits of a byte address: 16 to 64. Pointers beyond them are refused.
    parameter ADDR_W = 40,
    // Clusters and pairs of probers: 1 to 16 each.
    parameter CLUSTERS = 2,
    parameter PAIRS = 2,
    // The larger of both.
    localparam SLOTS = PAIRS > CLUSTERS ? PAIRS : CLUSTERS,
    // Words of 32 bits of a command's parameters.
    localparam PARAMS = 32 + 2 * SLOTS
) (
    input  wire                 clk,
    input  wire                 rst,

    // A command is taken when its result is.
    input  wire [PARAMS*32+7:0] s_command_tdata,
    input  wire                 s_command_tvalid,
    output wire                 s_command_tready,
    output wire [47:0]          m_result_tdata,
    output wire                 m_result_tvalid,
    input  wire                 m_result_tready,
    // Results wait for the host. After a command with flag HOLD none begins meanwhile, so that the checksums stay.
    input  wire                 results_wait,
    output wire                 working,

    // The command at work: steady from before the first start to the result.
    output wire [PARAMS*32-1:0] job,
    // MERGE, INDEX: a cluster starts on its slices. PROBE: a pair starts on its slice of the bounds.
    output wire [CLUSTERS-1:0]  cluster_start,
    output wire [PAIRS-1:0]     pair_start,
    output wire                 indexing,
    // Where its slices begin and end, in elements; no element where both are the same.
    output wire [31:0]          a_first,
    output wire [31:0]          a_end,
    output wire [31:0]          b_first,
    output wire [31:0]          b_end,
    // Forget the error flags of the command before.
    output wire                 clear,
    // Forget the on-chip index, and load another.
    output wire                 drop,
    output wire                 load,
    output wire [31:0]          load_count,

    // Anything at work, and anything that has met an error response.
    input  wire                 busy,
    input  wire                 fault
);

    `include "bisort_abi.svh"

    param_check #(.OK(KEY_W == 32 || KEY_W == 64), .MESSAGE("KEY_W must be 32 or 64")) key_check ();
    param_check #(
        .OK(INDEX_DEPTH >= 16 && INDEX_DEPTH <= 1048576 && INDEX_DEPTH == (1 << $clog2(INDEX_DEPTH))),
        .MESSAGE("INDEX_DEPTH must be a power of two, 16 to 1048576")
    ) depth_check ();
    param_check #(.OK(ADDR_W >= 16 && ADDR_W <= 64), .MESSAGE("ADDR_W must be 16 to 64")) addr_check ();
    param_check #(.OK(CLUSTERS >= 1 && CLUSTERS <= 16), .MESSAGE("CLUSTERS must be 1 to 16")) clusters_check ();
    param_check #(.OK(PAIRS >= 1 && PAIRS <= 16), .MESSAGE("PAIRS must be 1 to 16")) pairs_check ();

    localparam BYTES_LOG2 = $clog2(KEY_W / 8);
    localparam K_W = $clog2(SLOTS + 1);
    localparam [31:0] CAPACITY = INDEX_DEPTH;
    localparam [31:0] CLUSTER_END = CLUSTERS - 1;
    localparam [31:0] PAIR_END = PAIRS - 1;
    localparam [K_W-1:0] LAST_CLUSTER = CLUSTER_END[K_W-1:0];
    localparam [K_W-1:0] LAST_PAIR = PAIR_END[K_W-1:0];
    localparam [2:0] IDLE = 3'd0, LOOK = 3'd1, WALK = 3'd2, START = 3'd3, SETTLE = 3'd4, RUN = 3'd5, REPORT = 3'd6;

    reg [2:0]           state_reg;
    reg [7:0]           code_reg;
    reg [31:0]          cycles_reg;
    reg [K_W-1:0]       slot_reg;
    reg [31:0]          a_done_reg, b_done_reg;   // where the slot before ends
    reg                 settled_reg;
    reg                 held_reg;                 // the last command's result must be dropped first
    reg                 loaded_reg;               // the on-chip index is good, and whose it is:
    reg [63:0]          loaded_addr_reg;
    reg [31:0]          loaded_count_reg;

    wire [7:0] opcode = s_command_tdata[7:0];

    assign job = s_command_tdata[PARAMS*32+7:8];

    // ---- The parameters by name: bit offsets in the job are 8 times the byte offsets behind the first parameter.

    wire [63:0] a_words = job[(BISORT_REG_A_WORDS-BISORT_REG_A_WORDS)*8 +: 64];
    wire [63:0] a_ids = job[(BISORT_REG_A_IDS-BISORT_REG_A_WORDS)*8 +: 64];
    wire [63:0] b_words = job[(BISORT_REG_B_WORDS-BISORT_REG_A_WORDS)*8 +: 64];
    wire [63:0] b_ids = job[(BISORT_REG_B_IDS-BISORT_REG_A_WORDS)*8 +: 64];
    wire [63:0] out_words = job[(BISORT_REG_OUT_WORDS-BISORT_REG_A_WORDS)*8 +: 64];
    wire [63:0] out_ids = job[(BISORT_REG_OUT_IDS-BISORT_REG_A_WORDS)*8 +: 64];
    wire [63:0] index = job[(BISORT_REG_INDEX-BISORT_REG_A_WORDS)*8 +: 64];
    wire [31:0] a_total = job[(BISORT_REG_A_COUNT-BISORT_REG_A_WORDS)*8 +: 32];
    wire [31:0] b_total = job[(BISORT_REG_B_COUNT-BISORT_REG_A_WORDS)*8 +: 32];
    wire [31:0] step_log2 = job[(BISORT_REG_STEP_LOG2-BISORT_REG_A_WORDS)*8 +: 32];
    wire [31:0] flags = job[(BISORT_REG_FLAGS-BISORT_REG_A_WORDS)*8 +: 32];
    wire [63:0] slot = job[(BISORT_REG_SLOT_A-BISORT_REG_A_WORDS)*8 + slot_reg*64 +: 64];

    wire is_merge = opcode == BISORT_OP_MERGE[7:0];
    wire is_index = opcode == BISORT_OP_INDEX[7:0];
    wire is_probe = opcode == BISORT_OP_PROBE[7:0];
    wire band = flags[BISORT_FLAG_BAND[4:0]];
    wire uses_index = !is_merge || flags[BISORT_FLAG_INDEX[4:0]];

    // ---- Checks that need no walk. The first mistake counts.

    wire [32:0] sum = {1'b0, a_total} + {1'b0, b_total};
    wire word_off = |a_words[BYTES_LOG2-1:0] || (is_merge && |{b_words[BYTES_LOG2-1:0], out_words[BYTES_LOG2-1:0]})
        || (is_probe && |{b_words[BYTES_LOG2-1:0], !band && |b_ids[BYTES_LOG2-1:0]})
        || (uses_index && |index[BYTES_LOG2-1:0]);
    wire beyond;
    wire id_off = (is_merge && |{a_ids[1:0], b_ids[1:0], out_ids[1:0]}) || (is_probe && |{out_words[1:0], out_ids[1:0]});
    wire zero = is_merge ? sum == 0 : a_total == 0 || (is_probe && b_total == 0);
    wire over = is_merge ? sum > {1'b0, BISORT_MAX_LENGTH}
        : a_total > BISORT_MAX_LENGTH || (is_probe && b_total > BISORT_MAX_LENGTH);
    wire step_off = uses_index && (step_log2 < BISORT_MIN_STEP_LOG2 || step_log2 > 32'd31);
    wire [32:0] rounded = {1'b0, a_total} + ((33'd1 << step_log2[4:0]) - 33'd1);
    wire [32:0] samples = rounded >> step_log2[4:0];
    wire too_large = is_probe && samples > {1'b0, CAPACITY};

    reg [7:0] found;
    always @* begin
        found = BISORT_ERR_OK[7:0];
        if (too_large) found = BISORT_ERR_INDEX_TOO_LARGE[7:0];
        if (step_off) found = BISORT_ERR_BAD_STEP[7:0];
        if (word_off || id_off) found = BISORT_ERR_UNALIGNED[7:0];
        if (beyond) found = BISORT_ERR_BAD_ADDRESS[7:0];
        if (over) found = BISORT_ERR_OVER_LIMIT[7:0];
        if (zero) found = BISORT_ERR_ZERO_LENGTH[7:0];
        if (!(is_merge || is_index || is_probe)) found = BISORT_ERR_UNKNOWN_OPCODE[7:0];
    end

    generate
        if (ADDR_W < 64) begin : narrow
            // Pointers that this command does not use count as well: the host stages none that it could not use.
            assign beyond = |{a_words[63:ADDR_W], a_ids[63:ADDR_W], b_words[63:ADDR_W], b_ids[63:ADDR_W],
                out_words[63:ADDR_W], out_ids[63:ADDR_W], index[63:ADDR_W]};
        end else begin : narrow
            assign beyond = 1'b0;
        end
    endgenerate

    // ---- The walks over the slots.

    wire [31:0] a_goal = is_probe ? b_total : a_total;
    wire [31:0] b_goal = is_merge ? b_total : 32'd0;
    wire last_slot = slot_reg == (is_probe ? LAST_PAIR : LAST_CLUSTER);
    wire slice_off = a_end < a_done_reg || b_end < b_done_reg || a_end > a_goal || b_end > b_goal
        || (last_slot && (a_end != a_goal || b_end != b_goal));
    wire walking = state_reg == WALK || state_reg == START;
    wire starts = state_reg == START && (a_end != a_done_reg || b_end != b_done_reg);
    wire resident = loaded_reg && loaded_addr_reg == index && loaded_count_reg == samples[31:0]
        && flags[BISORT_FLAG_KEEP[4:0]];
    wire reload = is_probe && !resident;

    assign a_first = a_done_reg;
    assign b_first = b_done_reg;
    assign a_end = slot[31:0];
    assign b_end = is_merge ? slot[63:32] : 32'd0;

    genvar k;
    generate
        for (k = 0; k < CLUSTERS; k = k + 1) begin : cluster
            localparam [K_W-1:0] HERE = k;
            assign cluster_start[k] = starts && !is_probe && slot_reg == HERE;
        end
        for (k = 0; k < PAIRS; k = k + 1) begin : pair
            localparam [K_W-1:0] HERE = k;
            assign pair_start[k] = starts && is_probe && slot_reg == HERE;
        end
    endgenerate

    always @(posedge clk) begin
        cycles_reg <= cycles_reg + 32'd1;
        case (state_reg)
            IDLE: if (s_command_tvalid && !(held_reg && results_wait)) begin
                state_reg <= LOOK;
                cycles_reg <= 32'd1;
            end
            LOOK: begin
                code_reg <= found;
                state_reg <= found == BISORT_ERR_OK[7:0] ? WALK : REPORT;
            end
            WALK: if (slice_off) begin
                code_reg <= BISORT_ERR_BAD_SLICE[7:0];
                state_reg <= REPORT;
            end else if (last_slot) begin
                state_reg <= START;
            end
            START: if (last_slot) state_reg <= SETTLE;
            // What was started shows as busy one cycle later.
            SETTLE: if (settled_reg) state_reg <= RUN;
            RUN: if (!busy) begin
                state_reg <= REPORT;
                if (fault) code_reg <= BISORT_ERR_AXI_ERROR[7:0];
            end
            default: if (m_result_tready) begin
                state_reg <= IDLE;
                held_reg <= flags[BISORT_FLAG_HOLD[4:0]];
            end
        endcase
        settled_reg <= state_reg == SETTLE;
        if (walking) begin
            slot_reg <= last_slot ? {K_W{1'b0}} : slot_reg + 1'b1;
            a_done_reg <= last_slot ? 32'd0 : a_end;
            b_done_reg <= last_slot ? 32'd0 : b_end;
        end else begin
            slot_reg <= {K_W{1'b0}};
            a_done_reg <= 32'd0;
            b_done_reg <= 32'd0;
        end
        if (load) begin
            loaded_reg <= 1'b1;
            loaded_addr_reg <= index;
            loaded_count_reg <= samples[31:0];
        end
        if (state_reg == RUN && !busy && fault) loaded_reg <= 1'b0;
        if (rst) begin
            state_reg <= IDLE;
            loaded_reg <= 1'b0;
            held_reg <= 1'b0;
        end
    end

    assign s_command_tready = state_reg == REPORT && m_result_tready;
    assign m_result_tdata = {cycles_reg, opcode, code_reg};
    assign m_result_tvalid = state_reg == REPORT;
    assign working = state_reg != IDLE;
    assign indexing = is_index;
    assign clear = state_reg == LOOK;
    // The drop comes a cycle before the first start, the load with it.
    assign drop = state_reg == WALK && last_slot && !slice_off && reload;
    assign load = state_reg == START && slot_reg == 0 && reload;
    assign load_count = samples[31:0];

endmodule

/* verilator lint_on UNUSEDSIGNAL */

`default_nettype wire
