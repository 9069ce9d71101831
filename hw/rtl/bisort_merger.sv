// Merges two sorted streams of tuples into one, W tuples per cycle, in the total order of {key, id} (PanJoin, IV, Figure 8).
//
// The paper's merger compares one pair of tuples per cycle. This one is built like FLiMS: tuple j of an input waits in lane
// j mod W; lane i of A is compared with lane W-1-i of B, and the W winners are the W smallest tuples left. Each cycle takes k
// tuples from A and W-k from B, so the pairing stays right while both inputs rotate, and no lane waits for another's comparison.
// The winners are a rotated bitonic sequence, which log2 W stages of compare-and-swap sort.
//
// Limits: both inputs ascending by {key, id}; beats full but for the last; an empty stream is one beat with tkeep = 0 and tlast.
// The output keeps the same rules. A beat goes on only when the next one, or the end, is known, because only then is tlast.
// One merge follows another without reset: both inputs' lasts belong together. A merge costs two cycles beyond its beats, or three.
//
// With several lanes a comparison has a cycle of its own: while two heads are decided, what may follow is compared, the next tuple of
// either input with the other's head. So the longest path is a comparison and a choice of two, not a comparison and all that follows from it.

`default_nettype none

module bisort_merger #(
    // Bits of a key: 32 or 64.
    parameter KEY_W = 64,
    // Bits of an id: 1 to 64.
    parameter ID_W = 32,
    // Tuples per cycle: 1, 2, 4 or 8.
    parameter W = 4
) (
    input  wire                      clk,
    input  wire                      rst,

    input  wire [W*(KEY_W+ID_W)-1:0] s_axis_a_tdata,
    input  wire [W-1:0]              s_axis_a_tkeep,
    input  wire                      s_axis_a_tlast,
    input  wire                      s_axis_a_tvalid,
    output wire                      s_axis_a_tready,

    input  wire [W*(KEY_W+ID_W)-1:0] s_axis_b_tdata,
    input  wire [W-1:0]              s_axis_b_tkeep,
    input  wire                      s_axis_b_tlast,
    input  wire                      s_axis_b_tvalid,
    output wire                      s_axis_b_tready,

    output wire [W*(KEY_W+ID_W)-1:0] m_axis_tdata,
    output wire [W-1:0]              m_axis_tkeep,
    output wire                      m_axis_tlast,
    output wire                      m_axis_tvalid,
    input  wire                      m_axis_tready
);

    localparam TUPLE_W = KEY_W + ID_W;
    localparam STAGES = $clog2(W);

    param_check #(.OK(KEY_W == 32 || KEY_W == 64), .MESSAGE("KEY_W must be 32 or 64")) key_check ();
    param_check #(.OK(ID_W >= 1 && ID_W <= 64), .MESSAGE("ID_W must be 1 to 64")) id_check ();
    param_check #(.OK(W == 1 || W == 2 || W == 4 || W == 8), .MESSAGE("W must be 1, 2, 4 or 8")) lanes_check ();

    // Lanes. Keys, ids and `none`, which is above every tuple, are kept apart, and vectors of lanes split, for fast simulation.
    wire [W-1:0] a_space, a_valid, a_none, b_space, b_valid, b_none;
    wire [W*KEY_W-1:0] winner_key  /* verilator split_var */;
    wire [W*ID_W-1:0] winner_id  /* verilator split_var */;
    wire [W-1:0] winner_none;
    wire advance, renew;

    assign s_axis_a_tready = &a_space;
    assign s_axis_b_tready = &b_space;

    genvar i, k;
    generate
        for (i = 0; i < W; i = i + 1) begin : lane
            wire [KEY_W-1:0] a_key, b_key;
            wire [ID_W-1:0] a_id, b_id;
            // One lane alone does not look ahead.
            /* verilator lint_off UNUSEDSIGNAL */
            wire [KEY_W-1:0] a_next_key, b_next_key;
            wire [ID_W-1:0] a_next_id, b_next_id;
            wire a_load, b_load;
            /* verilator lint_on UNUSEDSIGNAL */
            wire b_hold, a_first;
            wire a_wins = b_none[i] || (!a_none[i] && a_first);

            assign winner_key[i*KEY_W +: KEY_W] = a_wins ? a_key : b_key;
            assign winner_id[i*ID_W +: ID_W] = a_wins ? a_id : b_id;
            assign winner_none[i] = a_none[i] && b_none[i];

            if (W > 1) begin : ahead
                wire next_a_first = a_next_key < b_key || (a_next_key == b_key && a_next_id <= b_id);
                wire next_b_last = a_key < b_next_key || (a_key == b_next_key && a_id <= b_next_id);
                reg a_first_reg;

                assign a_first = a_first_reg;
                // Two new heads at a time, which is before a merge alone, would need a third comparison.
                assign b_hold = a_load;
                always @(posedge clk) begin
                    if (a_load) a_first_reg <= next_a_first;
                    else if (b_load) a_first_reg <= next_b_last;
                end
            end else begin : ahead
                assign a_first = a_key < b_key || (a_key == b_key && a_id <= b_id);
                assign b_hold = 1'b0;
            end

            bisort_lane #(.KEY_W(KEY_W), .ID_W(ID_W)) a_lane (
                .clk(clk),
                .rst(rst),
                .push_key(s_axis_a_tdata[i*TUPLE_W+ID_W +: KEY_W]),
                .push_id(s_axis_a_tdata[i*TUPLE_W +: ID_W]),
                .push_none(!s_axis_a_tkeep[i]),
                .push_last(s_axis_a_tlast),
                .push(s_axis_a_tvalid && s_axis_a_tready),
                .space(a_space[i]),
                .head_key(a_key),
                .head_id(a_id),
                .head_none(a_none[i]),
                .head_valid(a_valid[i]),
                .pop(advance && a_wins),
                .renew(renew),
                .next_key(a_next_key),
                .next_id(a_next_id),
                .load(a_load),
                .hold(1'b0)
            );

            bisort_lane #(.KEY_W(KEY_W), .ID_W(ID_W)) b_lane (
                .clk(clk),
                .rst(rst),
                .push_key(s_axis_b_tdata[(W-1-i)*TUPLE_W+ID_W +: KEY_W]),
                .push_id(s_axis_b_tdata[(W-1-i)*TUPLE_W +: ID_W]),
                .push_none(!s_axis_b_tkeep[W-1-i]),
                .push_last(s_axis_b_tlast),
                .push(s_axis_b_tvalid && s_axis_b_tready),
                .space(b_space[i]),
                .head_key(b_key),
                .head_id(b_id),
                .head_none(b_none[i]),
                .head_valid(b_valid[i]),
                .pop(advance && !a_wins),
                .renew(renew),
                .next_key(b_next_key),
                .next_id(b_next_id),
                .load(b_load),
                .hold(b_hold)
            );
        end
    endgenerate

    // The winners wait here until the heads behind them show whether they were the last.
    reg [W*KEY_W-1:0] held_key_reg  /* verilator split_var */;
    reg [W*ID_W-1:0] held_id_reg  /* verilator split_var */;
    reg [W-1:0] held_none_reg;
    reg held_valid_reg;

    wire [STAGES:0] stage_ready;
    wire known = &a_valid && &b_valid;
    wire finished = &a_none && &b_none;
    wire send = held_valid_reg || finished;
    wire move = known && (stage_ready[0] || !send);

    assign advance = move && !finished;
    assign renew = move && finished;

    always @(posedge clk) begin
        if (advance) held_key_reg <= winner_key;
        if (advance) held_id_reg <= winner_id;
        if (advance) held_none_reg <= winner_none;
        if (move) held_valid_reg <= advance;
        if (rst) held_valid_reg <= 1'b0;
    end

    // Compare-and-swap stages: lanes at distance W/2, W/4, … 1. Stage k's input is part k of each vector.
    wire [(STAGES+1)*W*KEY_W-1:0] stage_key  /* verilator split_var */;
    wire [(STAGES+1)*W*ID_W-1:0] stage_id  /* verilator split_var */;
    wire [(STAGES+1)*W-1:0] stage_none;
    wire [STAGES:0] stage_last;
    wire [STAGES:0] stage_valid;

    assign stage_key[0 +: W*KEY_W] = held_key_reg;
    assign stage_id[0 +: W*ID_W] = held_id_reg;
    // A merge of two empty streams ends with nothing held: an empty beat.
    assign stage_none[0 +: W] = held_none_reg | {W{!held_valid_reg}};
    assign stage_last[0] = finished;
    assign stage_valid[0] = known && send;
    assign stage_ready[STAGES] = m_axis_tready;
    assign m_axis_tkeep = ~stage_none[STAGES*W +: W];
    assign m_axis_tlast = stage_last[STAGES];
    assign m_axis_tvalid = stage_valid[STAGES];

    generate
        for (i = 0; i < W; i = i + 1) begin : out
            assign m_axis_tdata[i*TUPLE_W +: TUPLE_W] =
                {stage_key[(STAGES*W+i)*KEY_W +: KEY_W], stage_id[(STAGES*W+i)*ID_W +: ID_W]};
        end

        for (k = 0; k < STAGES; k = k + 1) begin : stage
            localparam DISTANCE = W >> (k + 1);
            reg last_reg;
            reg valid_reg;

            assign stage_ready[k] = !valid_reg || stage_ready[k+1];
            assign stage_last[k+1] = last_reg;
            assign stage_valid[k+1] = valid_reg;

            always @(posedge clk) begin
                if (stage_ready[k]) begin
                    last_reg <= stage_last[k];
                    valid_reg <= stage_valid[k];
                end
                if (rst) valid_reg <= 1'b0;
            end

            for (i = 0; i < W; i = i + 1) begin : exchange
                if ((i & DISTANCE) == 0) begin : pair
                    bisort_swap #(.KEY_W(KEY_W), .ID_W(ID_W)) swap (
                        .clk(clk),
                        .enable(stage_ready[k]),
                        .a_key(stage_key[(k*W+i)*KEY_W +: KEY_W]),
                        .a_id(stage_id[(k*W+i)*ID_W +: ID_W]),
                        .a_none(stage_none[k*W+i]),
                        .b_key(stage_key[(k*W+i+DISTANCE)*KEY_W +: KEY_W]),
                        .b_id(stage_id[(k*W+i+DISTANCE)*ID_W +: ID_W]),
                        .b_none(stage_none[k*W+i+DISTANCE]),
                        .low_key(stage_key[((k+1)*W+i)*KEY_W +: KEY_W]),
                        .low_id(stage_id[((k+1)*W+i)*ID_W +: ID_W]),
                        .low_none(stage_none[(k+1)*W+i]),
                        .high_key(stage_key[((k+1)*W+i+DISTANCE)*KEY_W +: KEY_W]),
                        .high_id(stage_id[((k+1)*W+i+DISTANCE)*ID_W +: ID_W]),
                        .high_none(stage_none[(k+1)*W+i+DISTANCE])
                    );
                end
            end
        end
    endgenerate

endmodule

`default_nettype wire
