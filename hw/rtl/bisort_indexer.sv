// Samples the index of a run while the run streams by (PanJoin, III-D and IV): every 2**step_log2-th key, counted from the run's start.
//
// The stream passes from s_axis to m_axis through one register, without bubbles. A slice may begin at any position of its run:
// `first` is the global position of its first tuple, and tuples whose global position is a multiple of the step are samples.
//
// Samples leave one per beat. A sample is held until the next one or the end of the stream is seen, so that tlast is on the last
// sample; a stream without samples gives one beat with m_index_tkeep = 0 and tlast. Back-pressure on either output holds both.
// Limits: the step is at least 8 and at least W (so a beat has at most one sample); step_log2 and first are steady while a stream runs.

`default_nettype none

module bisort_indexer #(
    // Bits of a key: 32 or 64.
    parameter KEY_W = 64,
    // Bits of an id: 1 to 64.
    parameter ID_W = 32,
    // Tuples per beat: 1, 2, 4 or 8.
    parameter W = 4
) (
    input  wire                      clk,
    input  wire                      rst,

    // Logarithm of the step: 3 to 31.
    input  wire [4:0]                step_log2,
    // Position in the whole run of the stream's first tuple.
    input  wire [31:0]               first,

    input  wire [W*(KEY_W+ID_W)-1:0] s_axis_tdata,
    input  wire [W-1:0]              s_axis_tkeep,
    input  wire                      s_axis_tlast,
    input  wire                      s_axis_tvalid,
    output wire                      s_axis_tready,

    output wire [W*(KEY_W+ID_W)-1:0] m_axis_tdata,
    output wire [W-1:0]              m_axis_tkeep,
    output wire                      m_axis_tlast,
    output wire                      m_axis_tvalid,
    input  wire                      m_axis_tready,

    output wire [KEY_W-1:0]          m_index_tdata,
    output wire                      m_index_tkeep,
    output wire                      m_index_tlast,
    output wire                      m_index_tvalid,
    input  wire                      m_index_tready
);

    localparam TUPLE_W = KEY_W + ID_W;
    localparam LANE_W = $clog2(W);

    param_check #(.OK(KEY_W == 32 || KEY_W == 64), .MESSAGE("KEY_W must be 32 or 64")) key_check ();
    param_check #(.OK(ID_W >= 1 && ID_W <= 64), .MESSAGE("ID_W must be 1 to 64")) id_check ();
    param_check #(.OK(W == 1 || W == 2 || W == 4 || W == 8), .MESSAGE("W must be 1, 2, 4 or 8")) lanes_check ();

    // The beat that passes by.
    reg [W*TUPLE_W-1:0] beat_reg;
    reg [W-1:0] keep_reg;
    reg last_reg;
    reg valid_reg;

    // The sample on its way out, and the one held back.
    reg [KEY_W-1:0] index_reg;
    reg index_keep_reg;
    reg index_last_reg;
    reg index_valid_reg;
    reg [KEY_W-1:0] held_reg;
    reg held_valid_reg;
    // The held sample is the stream's last: it goes before anything else comes.
    reg flush_reg;

    wire index_free = !index_valid_reg || m_index_tready;
    wire take = s_axis_tvalid && s_axis_tready;

    assign s_axis_tready = (!valid_reg || m_axis_tready) && index_free && !flush_reg;
    assign m_axis_tdata = beat_reg;
    assign m_axis_tkeep = keep_reg;
    assign m_axis_tlast = last_reg;
    assign m_axis_tvalid = valid_reg;
    assign m_index_tdata = index_reg;
    assign m_index_tkeep = index_keep_reg;
    assign m_index_tlast = index_last_reg;
    assign m_index_tvalid = index_valid_reg;

    // The place in the run of lane 0 of the coming beat, and of the one after it: beats but the last are full.
    reg [31:0] place_reg;
    reg begun_reg;
    wire [31:0] place = begun_reg ? place_reg : first;
    wire [31:0] next_place = place + W;

    // Bits of a place that are zero at a sample; those within a beat choose the lane.
    reg [31:0] mask;
    integer i;

    always @* begin
        for (i = 0; i < 32; i = i + 1) mask[i] = i >= LANE_W && i < step_log2;
    end

    reg [KEY_W-1:0] sample;
    wire sampled;

    generate
        if (W > 1) begin : lanes
            wire [LANE_W-1:0] lane = {LANE_W{1'b0}} - place[LANE_W-1:0];
            integer k;

            always @* begin
                sample = s_axis_tdata[ID_W +: KEY_W];
                for (k = 1; k < W; k = k + 1) if (lane == k[LANE_W-1:0]) sample = s_axis_tdata[k*TUPLE_W+ID_W +: KEY_W];
            end
            assign sampled = s_axis_tkeep[lane] && ((lane == 0 ? place : next_place) & mask) == 0;
        end else begin : lanes
            always @* sample = s_axis_tdata[ID_W +: KEY_W];
            assign sampled = s_axis_tkeep[0] && (place & mask) == 0;
        end
    endgenerate

    always @(posedge clk) begin
        if (take) begin
            beat_reg <= s_axis_tdata;
            keep_reg <= s_axis_tkeep;
            last_reg <= s_axis_tlast;
            place_reg <= next_place;
        end
    end

    always @(posedge clk) begin
        if (take) begun_reg <= !s_axis_tlast;
        if (take) valid_reg <= 1'b1;
        else if (m_axis_tready) valid_reg <= 1'b0;
        if (rst) begin
            begun_reg <= 1'b0;
            valid_reg <= 1'b0;
        end
    end

    wire ends = take && s_axis_tlast;
    wire fresh = take && sampled;

    always @(posedge clk) begin
        if (fresh) held_reg <= sample;
        if (index_free) begin
            index_reg <= held_valid_reg ? held_reg : sample;
            index_keep_reg <= held_valid_reg || fresh;
            index_last_reg <= flush_reg || !(held_valid_reg && fresh);
        end
    end

    always @(posedge clk) begin
        if (index_free) begin
            index_valid_reg <= flush_reg || ends || (fresh && held_valid_reg);
            if (flush_reg) held_valid_reg <= 1'b0;
            else if (ends) held_valid_reg <= fresh && held_valid_reg;
            else if (fresh) held_valid_reg <= 1'b1;
            flush_reg <= ends && fresh && held_valid_reg;
        end
        if (rst) begin
            index_valid_reg <= 1'b0;
            held_valid_reg <= 1'b0;
            flush_reg <= 1'b0;
        end
    end

endmodule

`default_nettype wire
