// Proves bisort_sequencer: every command gets one result; a bad one starts nothing; a good one starts each unit that has a slice once,
// with that slice, and ends after the last unit; the index is loaded unless it is there and may be trusted; HOLD holds; no deadlock.
//
// Two clusters and one pair. A unit is at work from the second cycle after its start on, for any time. Numbers have few bits: the highest,
// which is over the limits, and the lowest.

`default_nettype none

module bisort_sequencer_proof #(
    parameter CLUSTERS = 2
) (
    input wire                            clk,
    input wire                            rst,
    input wire [7:0]  opcode,
    input wire [27:0] pointers,     // of each: a bit beyond ADDR_W, and the three lowest
    input wire [9:0]  counts,       // of each, and of each slot's ends: the highest bit and the four lowest
    input wire [19:0] ends_of_slots,
    input wire [5:0]  step,
    input wire [3:0]  flag_bits,
    input wire        command_valid,
    input wire        result_ready,
    input wire        results_wait,
    input wire        fault,
    input wire        ends
);

    `include "bisort_abi.svh"

    localparam PAIRS = 1;
    localparam PARAMS = 32 + 2 * CLUSTERS;

    reset_first reset (.clk(clk), .rst(rst));

    wire command_ready, result_valid, working, indexing, clear, drop, load;
    wire [47:0] result;
    wire [PARAMS*32-1:0] job;
    reg [PARAMS*32+7:0] command;
    integer n;

    always @* begin
        command = 0;
        command[7:0] = opcode;
        for (n = 0; n < 7; n = n + 1) begin
            command[8 + n*64 +: 3] = pointers[n*4 +: 3];
            command[8 + n*64 + 40] = pointers[n*4+3];
        end
        for (n = 0; n < 2; n = n + 1) begin
            command[8 + (BISORT_REG_A_COUNT-BISORT_REG_A_WORDS)*8 + n*32 +: 4] = counts[n*5 +: 4];
            command[8 + (BISORT_REG_A_COUNT-BISORT_REG_A_WORDS)*8 + n*32 + 31] = counts[n*5+4];
        end
        for (n = 0; n < 4; n = n + 1) begin
            command[8 + (BISORT_REG_SLOT_A-BISORT_REG_A_WORDS)*8 + n*32 +: 4] = ends_of_slots[n*5 +: 4];
            command[8 + (BISORT_REG_SLOT_A-BISORT_REG_A_WORDS)*8 + n*32 + 31] = ends_of_slots[n*5+4];
        end
        command[8 + (BISORT_REG_STEP_LOG2-BISORT_REG_A_WORDS)*8 +: 6] = step;
        command[8 + (BISORT_REG_FLAGS-BISORT_REG_A_WORDS)*8 +: 4] = flag_bits;
    end

    wire [CLUSTERS-1:0] cluster_start;
    wire [PAIRS-1:0] pair_start;
    wire [31:0] a_first, a_end, b_first, b_end, load_count;
    reg [1:0] started_reg;
    reg busy_reg;

    bisort_sequencer #(.KEY_W(32), .INDEX_DEPTH(16), .ADDR_W(40), .CLUSTERS(CLUSTERS), .PAIRS(PAIRS)) unit (
        .clk(clk),
        .rst(rst),
        .s_command_tdata(command),
        .s_command_tvalid(command_valid),
        .s_command_tready(command_ready),
        .m_result_tdata(result),
        .m_result_tvalid(result_valid),
        .m_result_tready(result_ready),
        .results_wait(results_wait),
        .working(working),
        .job(job),
        .cluster_start(cluster_start),
        .pair_start(pair_start),
        .indexing(indexing),
        .a_first(a_first),
        .a_end(a_end),
        .b_first(b_first),
        .b_end(b_end),
        .clear(clear),
        .drop(drop),
        .load(load),
        .load_count(load_count),
        .busy(busy_reg),
        .fault(fault)
    );

    // A command stays until it is taken.
    reg stalled_reg;
    wire [75:0] given = {opcode, pointers, counts, ends_of_slots, step, flag_bits};
    reg [75:0] given_reg;
    always @* if (!rst && stalled_reg) assume (command_valid && given == given_reg);

    wire [7:0] code = result[7:0];
    wire is_merge = opcode == BISORT_OP_MERGE[7:0];
    wire is_probe = opcode == BISORT_OP_PROBE[7:0];
    wire known = is_merge || is_probe || opcode == BISORT_OP_INDEX[7:0];
    wire [31:0] a_count = job[(BISORT_REG_A_COUNT-BISORT_REG_A_WORDS)*8 +: 32];
    wire [31:0] b_count = job[(BISORT_REG_B_COUNT-BISORT_REG_A_WORDS)*8 +: 32];
    wire [31:0] flags = job[(BISORT_REG_FLAGS-BISORT_REG_A_WORDS)*8 +: 32];
    wire [63:0] index = job[(BISORT_REG_INDEX-BISORT_REG_A_WORDS)*8 +: 64];
    wire [127:0] slots = job[(BISORT_REG_SLOT_A-BISORT_REG_A_WORDS)*8 +: 128];
    wire zero = is_merge ? {1'b0, a_count} + {1'b0, b_count} == 33'd0 : a_count == 0 || (is_probe && b_count == 0);
    // Ends of the slices: a and b of cluster 0, then of cluster 1; a probe has one slice, of the bounds.
    wire [31:0] a0 = slots[31:0], b0 = is_merge ? slots[63:32] : 32'd0, a1 = slots[95:64], b1 = is_merge ? slots[127:96] : 32'd0;
    wire [31:0] b_goal = is_merge ? b_count : 32'd0;
    wire whole = is_probe ? a0 == b_count : a0 <= a1 && b0 <= b1 && a1 == a_count && b1 == b_goal;

    (* anyconst *) reg followed;     // a cluster
    reg [1:0] starts_reg, loads_reg;
    reg any_reg, held_reg, loaded_reg, resident_reg, fault_reg;
    reg [63:0] loaded_addr_reg;
    reg [31:0] loaded_count_reg;
    reg [2:0] results_reg, commands_reg;
    wire begun = |cluster_start || |pair_start || load;
    wire done = result_valid && result_ready;
    wire slice = followed ? a1 != a0 || b1 != b0 : a0 != 0 || b0 != 0;
    wire start_here = is_probe ? pair_start[0] : cluster_start[followed];
    wire [63:0] right_first = followed && !is_probe ? {a0, b0} : 64'd0;
    wire [63:0] right_last = followed && !is_probe ? {a1, b1} : {a0, is_merge ? b0 : 32'd0};

    always @(posedge clk) begin
        stalled_reg <= command_valid && !command_ready;
        given_reg <= given;
        started_reg <= {started_reg[0], begun};
        if (started_reg[1]) busy_reg <= 1'b1;
        else if (ends) busy_reg <= 1'b0;
        any_reg <= (any_reg || begun) && !done;
        starts_reg <= done ? 2'd0 : starts_reg + {1'b0, start_here};
        loads_reg <= done ? 2'd0 : loads_reg + {1'b0, load};
        fault_reg <= fault;
        if (done) held_reg <= flags[BISORT_FLAG_HOLD[4:0]];
        if (clear) resident_reg <= loaded_reg && loaded_addr_reg == index && flags[BISORT_FLAG_KEEP[4:0]];
        if (load) {loaded_reg, loaded_addr_reg, loaded_count_reg} <= {1'b1, index, load_count};
        if (done && code == BISORT_ERR_AXI_ERROR[7:0]) loaded_reg <= 1'b0;
        if (done) results_reg <= results_reg + 3'd1;
        if (command_valid && command_ready) commands_reg <= commands_reg + 3'd1;
        if (rst) begin
            stalled_reg <= 1'b0;
            started_reg <= 2'b00;
            busy_reg <= 1'b0;
            any_reg <= 1'b0;
            starts_reg <= 2'd0;
            loads_reg <= 2'd0;
            held_reg <= 1'b0;
            loaded_reg <= 1'b0;
            results_reg <= 3'd0;
            commands_reg <= 3'd0;
        end
    end

    wire good = code == BISORT_ERR_OK[7:0] || code == BISORT_ERR_AXI_ERROR[7:0];

    always @* if (!rst) begin
        for_a_command: assert (!result_valid || (command_valid && result[15:8] == opcode));
        taken_with_result: assert (command_ready == (result_valid && result_ready));
        one_result: assert (results_reg == commands_reg);
        bad_starts_nothing: assert (!result_valid || good || !any_reg);
        no_such_opcode: assert (!result_valid || (code == BISORT_ERR_UNKNOWN_OPCODE[7:0]) == !known);
        nothing_to_do: assert (!result_valid || !known || (code == BISORT_ERR_ZERO_LENGTH[7:0]) == zero);
        slices_are_whole: assert (!result_valid || !good || whole);
        bad_slices: assert (!result_valid || code != BISORT_ERR_BAD_SLICE[7:0] || !whole);
        ends_last: assert (!result_valid || (!busy_reg && started_reg == 2'b00));
        starts_once: assert (!(result_valid && good) || starts_reg == {1'b0, is_probe || slice});
        right_slice: assert (!start_here || {a_first, b_first, a_end, b_end}
            == {right_first[63:32], right_first[31:0], right_last[63:32], right_last[31:0]});
        right_kind: assert (!(|cluster_start) || (!is_probe && indexing == !is_merge));
        right_pair: assert (!(|pair_start) || is_probe);
        loads_once: assert (!(result_valid && good) || loads_reg <= {1'b0, is_probe});
        loads_unless_there: assert (!(result_valid && good && is_probe && loads_reg == 0) || resident_reg);
        dropped_first: assert (!drop || (is_probe && !begun));
        second_slice: cover (start_here && followed && is_merge && starts_reg == 0 && flags[BISORT_FLAG_HOLD[4:0]]);
    end

    // After a command with HOLD the next one begins only when no result waits.
    reg was_working_reg, was_held_reg;
    always @(posedge clk) begin
        was_working_reg <= working && !rst;
        was_held_reg <= held_reg && results_wait && !rst;
    end
    always @* if (!rst) hold_is_kept: assert (!(working && !was_working_reg && was_held_reg));

    stream_rules #(.WIDTH(16), .ASCENDING(0)) result_rules (
        .clk(clk), .rst(rst), .tdata(result[15:0]), .tkeep(1'b1), .tlast(1'b0), .tvalid(result_valid), .tready(result_ready));
    patience #(.MOST(10)) moving (
        .clk(clk), .rst(rst), .waiting(command_valid && !busy_reg && !result_valid && !(held_reg && results_wait)));

endmodule

`default_nettype wire
