// Scans partitions against bounds and gives each bound's position in the run (PanJoin, III-E and IV, Figure 9).
//
// Bounds come in ascending order with their partitions. Each distinct partition is asked for once, many ahead, and its words come
// back in the same order as W-lane beats with tlast at each partition's end. Bounds and words are then walked as in a merge, W words
// per cycle: the position of a bound is where the first word that is not before it stands, or the partition's end. A beat is left
// in the very cycle in which a bound's position is found in it if the next bound lies beyond it, so a partition costs as many
// cycles as it has beats, and one more for each further bound within the same beat.
//
// Positions come out in the order of the bounds. The last one of a stream waits until all words that were asked for have been
// taken, so nothing is left over behind tlast. A bound without a partition has position 0 and asks for nothing.
// Limits: `upper` and `step_log2` are steady while a stream runs; words of a partition are ascending, and a partition has at least one.

`default_nettype none

module bisort_prober #(
    // Bits of a key: 32 or 64.
    parameter KEY_W = 64,
    // Words per beat: 1, 2, 4, 8 or 16.
    parameter W = 4,
    // Bits of a partition's number: 1 to 31.
    parameter PART_W = 16,
    // Bounds that wait for their words, thus also most partitions asked for: a power of two, 2 or more. Covers the memory's latency.
    parameter PENDING = 64
) (
    input  wire               clk,
    input  wire               rst,

    // Upper bounds: words equal to the bound are before it.
    input  wire               upper,
    // Logarithm of the words per partition: 0 to 31.
    input  wire [4:0]         step_log2,

    // Bounds with tuser = {none, partition}; an empty stream is one beat with tkeep = 0 and tlast.
    input  wire [KEY_W-1:0]   s_axis_tdata,
    input  wire [PART_W:0]    s_axis_tuser,
    input  wire               s_axis_tkeep,
    input  wire               s_axis_tlast,
    input  wire               s_axis_tvalid,
    output wire               s_axis_tready,

    // Partitions wanted.
    output wire [PART_W-1:0]  m_req_tdata,
    // The place of such a partition's first word in the run.
    output wire [31:0]        m_req_first,
    output wire               m_req_tvalid,
    input  wire               m_req_tready,

    // Their words, in the same order.
    input  wire [W*KEY_W-1:0] s_words_tdata,
    input  wire [W-1:0]       s_words_tkeep,
    input  wire               s_words_tlast,
    input  wire               s_words_tvalid,
    output wire               s_words_tready,

    // Positions.
    output wire [31:0]        m_axis_tdata,
    output wire               m_axis_tkeep,
    output wire               m_axis_tlast,
    output wire               m_axis_tvalid,
    input  wire               m_axis_tready
);

    localparam COUNT_W = $clog2(W) + 1;
    localparam PENDING_W = KEY_W + 32 + 4;

    param_check #(.OK(KEY_W == 32 || KEY_W == 64), .MESSAGE("KEY_W must be 32 or 64")) key_check ();
    param_check #(.OK(W == 1 || W == 2 || W == 4 || W == 8 || W == 16), .MESSAGE("W must be 1, 2, 4, 8 or 16")) lanes_check ();
    param_check #(.OK(PART_W >= 1 && PART_W <= 31), .MESSAGE("PART_W must be 1 to 31")) partition_check ();

    // Asking: a bound whose partition differs from the one before it asks for the words and is marked `fresh`.
    reg [PART_W-1:0] asked_reg;
    reg [31:0] asked_first_reg;
    reg asked_valid_reg;
    reg req_valid_reg;

    wire pending_ready;
    wire in_none = s_axis_tuser[PART_W] || !s_axis_tkeep;
    wire in_fresh = !in_none && !(asked_valid_reg && asked_reg == s_axis_tuser[PART_W-1:0]);
    wire req_free = !req_valid_reg || m_req_tready;
    wire take = s_axis_tvalid && s_axis_tready;
    // Here once for all, since what it gives is stored anyway and the shift is not small.
    wire [31:0] in_first = {{(32-PART_W){1'b0}}, s_axis_tuser[PART_W-1:0]} << step_log2;

    assign s_axis_tready = pending_ready && req_free;
    // The partition that was asked for last is the one being asked for.
    assign m_req_tdata = asked_reg;
    assign m_req_first = asked_first_reg;
    assign m_req_tvalid = req_valid_reg;

    always @(posedge clk) begin
        if (take && in_fresh) asked_reg <= s_axis_tuser[PART_W-1:0];
        if (take && in_fresh) asked_first_reg <= in_first;
        if (take) asked_valid_reg <= !s_axis_tlast && !in_none;
        if (req_free) req_valid_reg <= take && in_fresh;
        if (rst) begin
            asked_valid_reg <= 1'b0;
            req_valid_reg <= 1'b0;
        end
    end

    // The bound at work, and the next one behind it.
    wire [KEY_W-1:0] next_bound;
    wire [31:0] next_first;
    wire next_fresh, next_none, next_keep, next_last, next_valid, next_take;
    reg [KEY_W-1:0] bound_reg;
    reg [31:0] first_reg;
    reg fresh_reg, none_reg, keep_reg, last_reg, valid_reg;

    /* verilator lint_off PINCONNECTEMPTY */
    stream_fifo #(.WIDTH(PENDING_W), .DEPTH(PENDING)) pending (
        .clk(clk),
        .rst(rst),
        .s_axis_tdata({in_fresh, in_none, s_axis_tkeep, s_axis_tlast, in_first, s_axis_tdata}),
        .s_axis_tvalid(s_axis_tvalid && req_free),
        .s_axis_tready(pending_ready),
        .m_axis_tdata({next_fresh, next_none, next_keep, next_last, next_first, next_bound}),
        .m_axis_tvalid(next_valid),
        .m_axis_tready(next_take),
        .count()
    );
    /* verilator lint_on PINCONNECTEMPTY */

    // The beat of words at work, and how many words of its partition came before it.
    reg [W*KEY_W-1:0] words_reg;
    reg [W-1:0] words_keep_reg;
    reg words_last_reg, words_valid_reg;
    reg [31:0] passed_reg;
    // The beat belongs to a partition that a bound has looked at already.
    reg open_reg;

    // Words are ascending, so those before the bound come first.
    wire [W-1:0] precedes;
    genvar i;
    generate
        for (i = 0; i < W; i = i + 1) begin : lane
            assign precedes[i] = words_keep_reg[i] && {words_reg[i*KEY_W +: KEY_W], 1'b0} < {bound_reg, upper};
        end
    endgenerate
    wire exhausted = precedes == words_keep_reg;
    wire next_beyond = {words_reg[(W-1)*KEY_W +: KEY_W], 1'b0} < {next_bound, upper};

    // What happens in this cycle.
    wire found_ready;
    wire skip = valid_reg && fresh_reg && open_reg;
    wire scan = valid_reg && !none_reg && !skip && words_valid_reg;
    wire found = (valid_reg && none_reg) || (scan && (!exhausted || words_last_reg));
    wire emit = found && found_ready;
    wire leave = last_reg || (next_valid && next_fresh);
    wire onward = next_valid && next_beyond && !words_last_reg;
    // Behind a stream's last bound nobody wants the rest of its partition.
    reg drain_reg;
    wire used = (scan && ((exhausted && !words_last_reg) || (emit && (leave || onward)))) ||
                ((skip || drain_reg) && words_valid_reg);

    assign next_take = emit || !valid_reg;
    assign s_words_tready = !words_valid_reg || used;

    always @(posedge clk) begin
        if (next_take) begin
            bound_reg <= next_bound;
            first_reg <= next_first;
            none_reg <= next_none;
            keep_reg <= next_keep;
            last_reg <= next_last;
        end
        if (s_words_tready) begin
            words_reg <= s_words_tdata;
            words_keep_reg <= s_words_tkeep;
            words_last_reg <= s_words_tlast;
        end
    end

    always @(posedge clk) begin
        if (next_take) valid_reg <= next_valid;
        if (next_take) fresh_reg <= next_fresh;
        else if (scan) fresh_reg <= 1'b0;
        if (s_words_tready) words_valid_reg <= s_words_tvalid;
        if (used) passed_reg <= words_last_reg ? 0 : passed_reg + W;
        if (used) open_reg <= !words_last_reg;
        else if (scan) open_reg <= 1'b1;
        if (drain_reg) drain_reg <= !(used && words_last_reg);
        else drain_reg <= scan && emit && last_reg && !words_last_reg;
        if (rst) begin
            valid_reg <= 1'b0;
            words_valid_reg <= 1'b0;
            passed_reg <= 0;
            open_reg <= 1'b0;
            drain_reg <= 1'b0;
        end
    end

    // Positions: the count within the beat, then the sum.
    reg [COUNT_W-1:0] passing;
    integer j;

    always @* begin
        passing = 0;
        for (j = 0; j < W; j = j + 1) passing = passing + {{(COUNT_W-1){1'b0}}, precedes[j]};
    end

    reg [31:0] start_reg, within_reg, position_reg;
    reg found_keep_reg, found_last_reg, found_valid_reg;
    reg position_keep_reg, position_last_reg, position_valid_reg;
    wire found_move = (!position_valid_reg || m_axis_tready) && !(found_last_reg && drain_reg);

    assign found_ready = !found_valid_reg || found_move;
    assign m_axis_tdata = position_reg;
    assign m_axis_tkeep = position_keep_reg;
    assign m_axis_tlast = position_last_reg;
    assign m_axis_tvalid = position_valid_reg;

    always @(posedge clk) begin
        if (emit) begin
            start_reg <= none_reg ? 0 : first_reg;
            within_reg <= none_reg ? 0 : passed_reg + {{(32-COUNT_W){1'b0}}, passing};
            found_keep_reg <= keep_reg;
            found_last_reg <= last_reg;
        end
        if (found_move && found_valid_reg) begin
            position_reg <= start_reg + within_reg;
            position_keep_reg <= found_keep_reg;
            position_last_reg <= found_last_reg;
        end
    end

    always @(posedge clk) begin
        if (found_ready) found_valid_reg <= emit;
        if (found_move && found_valid_reg) position_valid_reg <= 1'b1;
        else if (m_axis_tready) position_valid_reg <= 1'b0;
        if (rst) begin
            found_valid_reg <= 1'b0;
            position_valid_reg <= 1'b0;
        end
    end

endmodule

`default_nettype wire
