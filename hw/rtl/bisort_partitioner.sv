// Finds each bound's target partition by binary search in the on-chip index, one bound per cycle (PanJoin, III-E and IV).
//
// Partition p begins at the word that is sample p. A bound's place lies in the last partition whose sample is before the bound:
// below a lower bound, not above an upper one. If no sample is, there is none, and the bound's place is position 0.
//
// The paper's software search starts from the last result, because that is near. Here all steps of the search run at once, each in
// its own memory (bisort_index_level) for another bound: one cycle per bound, near or far, in any order. What a sorted batch does save is
// reading a partition again; bisort_prober sees to that.
//
// The index comes as a stream of W-lane beats, sample 0 first, and stays until the next one. `drop` forgets it: bounds then wait
// until a new index has come. An index is taken in only while no bound is on its way. An empty index (one beat, tkeep = 0) is
// allowed; every bound has no partition then. Limit: at most INDEX_DEPTH samples.

`default_nettype none

module bisort_partitioner #(
    // Bits of a key: 32 or 64.
    parameter KEY_W = 64,
    // Samples per beat of the index: 1, 2, 4, 8 or 16.
    parameter W = 4,
    // Most samples of an index: a power of two, 2 * W to 1048576. Costs INDEX_DEPTH * KEY_W bits of memory.
    parameter INDEX_DEPTH = 65536
) (
    input  wire                           clk,
    input  wire                           rst,

    // The bound that comes is an upper one: samples equal to it are before it.
    input  wire                           upper,
    // Forget the index.
    input  wire                           drop,

    input  wire [W*KEY_W-1:0]             s_index_tdata,
    input  wire [W-1:0]                   s_index_tkeep,
    input  wire                           s_index_tlast,
    input  wire                           s_index_tvalid,
    output wire                           s_index_tready,

    // Bounds; an empty stream is one beat with tkeep = 0 and tlast.
    input  wire [KEY_W-1:0]               s_axis_tdata,
    input  wire                           s_axis_tkeep,
    input  wire                           s_axis_tlast,
    input  wire                           s_axis_tvalid,
    output wire                           s_axis_tready,

    // Bounds again, with tuser = {none, partition}.
    output wire [KEY_W-1:0]               m_axis_tdata,
    output wire [$clog2(INDEX_DEPTH):0]   m_axis_tuser,
    output wire                           m_axis_tkeep,
    output wire                           m_axis_tlast,
    output wire                           m_axis_upper,
    output wire                           m_axis_tvalid,
    input  wire                           m_axis_tready
);

    localparam DEPTH_LOG2 = $clog2(INDEX_DEPTH);
    localparam TAG_W = 3;
    localparam OUT_W = KEY_W + DEPTH_LOG2 + TAG_W + 1;
    // Bounds on their way need room at the end, because the levels never stand still: two cycles per level and three more.
    localparam ROOM_LOG2 = $clog2(2 * DEPTH_LOG2 + 3);

    param_check #(.OK(KEY_W == 32 || KEY_W == 64), .MESSAGE("KEY_W must be 32 or 64")) key_check ();
    param_check #(.OK(W == 1 || W == 2 || W == 4 || W == 8 || W == 16), .MESSAGE("W must be 1, 2, 4, 8 or 16")) lanes_check ();
    param_check #(
        .OK(INDEX_DEPTH == (1 << DEPTH_LOG2) && INDEX_DEPTH >= 2 * W && INDEX_DEPTH <= 1048576),
        .MESSAGE("INDEX_DEPTH must be a power of two, 2 * W to 1048576")
    ) depth_check ();

    // The index: sample 0 in a register, the others in the levels.
    reg [DEPTH_LOG2-1:0] beat_reg;
    reg [KEY_W-1:0] least_reg;
    reg [DEPTH_LOG2-1:0] last_reg;   // number of the last sample
    reg empty_reg;
    reg loaded_reg;

    wire write = s_index_tvalid && s_index_tready;
    reg [DEPTH_LOG2-1:0] kept;
    integer lane;

    always @* begin
        kept = 0;
        for (lane = 0; lane < W; lane = lane + 1) kept = kept + {{(DEPTH_LOG2-1){1'b0}}, s_index_tkeep[lane]};
    end

    always @(posedge clk) begin
        if (write) begin
            beat_reg <= s_index_tlast ? 0 : beat_reg + 1'b1;
            last_reg <= beat_reg == 0 ? kept - {{(DEPTH_LOG2-1){1'b0}}, s_index_tkeep[0]} : last_reg + kept;
            loaded_reg <= s_index_tlast;
            if (beat_reg == 0) least_reg <= s_index_tdata[KEY_W-1:0];
            if (beat_reg == 0) empty_reg <= !s_index_tkeep[0];
        end
        if (drop) loaded_reg <= 1'b0;
        if (rst) begin
            beat_reg <= 0;
            loaded_reg <= 1'b0;
        end
    end

    // Bounds on their way, those waiting at the end included.
    reg [ROOM_LOG2:0] busy_reg;
    wire take = s_axis_tvalid && s_axis_tready;
    wire give = m_axis_tvalid && m_axis_tready;

    assign s_axis_tready = loaded_reg && !drop && !busy_reg[ROOM_LOG2];
    assign s_index_tready = busy_reg == 0 && !take;

    always @(posedge clk) begin
        busy_reg <= busy_reg + {{ROOM_LOG2{1'b0}}, take} - {{ROOM_LOG2{1'b0}}, give};
        if (rst) busy_reg <= 0;
    end

    // The search: first sample 0, then a level per bit of the partition's number.
    wire none = empty_reg || !({least_reg, 1'b0} < {s_axis_tdata, upper});
    reg [KEY_W-1:0] first_bound_reg;
    reg first_upper_reg;
    reg [TAG_W-1:0] first_tag_reg;
    reg first_valid_reg;

    always @(posedge clk) begin
        if (take) first_bound_reg <= s_axis_tdata;
        if (take) first_upper_reg <= upper;
        if (take) first_tag_reg <= {none, s_axis_tkeep, s_axis_tlast};
        first_valid_reg <= take && !rst;
    end

    wire [(DEPTH_LOG2+1)*DEPTH_LOG2-1:0] partitions;
    wire [(DEPTH_LOG2+1)*KEY_W-1:0] bounds;
    wire [(DEPTH_LOG2+1)*TAG_W-1:0] tags;
    wire [DEPTH_LOG2:0] uppers, valids;
    // Behind the last level nobody asks.
    /* verilator lint_off UNUSEDSIGNAL */
    wire [DEPTH_LOG2:0] edges;
    /* verilator lint_on UNUSEDSIGNAL */

    assign partitions[DEPTH_LOG2-1:0] = 0;
    assign edges[0] = 1'b1;
    assign bounds[KEY_W-1:0] = first_bound_reg;
    assign uppers[0] = first_upper_reg;
    assign tags[TAG_W-1:0] = first_tag_reg;
    assign valids[0] = first_valid_reg;

    genvar i;
    generate
        for (i = 0; i < DEPTH_LOG2; i = i + 1) begin : level
            bisort_index_level #(
                .KEY_W(KEY_W),
                .W(W),
                .DEPTH_LOG2(DEPTH_LOG2),
                .LEVEL(i),
                .TAG_W(TAG_W)
            ) step (
                .clk(clk),
                .rst(rst),
                .last_bit(last_reg[DEPTH_LOG2-1-i]),
                .write_data(s_index_tdata),
                .write_beat(beat_reg),
                .write(write),
                .in_partition(partitions[i*DEPTH_LOG2 +: DEPTH_LOG2]),
                .in_edge(edges[i]),
                .in_bound(bounds[i*KEY_W +: KEY_W]),
                .in_upper(uppers[i]),
                .in_tag(tags[i*TAG_W +: TAG_W]),
                .in_valid(valids[i]),
                .out_partition(partitions[(i+1)*DEPTH_LOG2 +: DEPTH_LOG2]),
                .out_edge(edges[i+1]),
                .out_bound(bounds[(i+1)*KEY_W +: KEY_W]),
                .out_upper(uppers[i+1]),
                .out_tag(tags[(i+1)*TAG_W +: TAG_W]),
                .out_valid(valids[i+1])
            );
        end
    endgenerate

    wire [DEPTH_LOG2-1:0] found = partitions[DEPTH_LOG2*DEPTH_LOG2 +: DEPTH_LOG2];
    wire [OUT_W-1:0] found_word =
        {uppers[DEPTH_LOG2], tags[DEPTH_LOG2*TAG_W +: TAG_W], found, bounds[DEPTH_LOG2*KEY_W +: KEY_W]};

    /* verilator lint_off PINCONNECTEMPTY */
    stream_fifo #(.WIDTH(OUT_W), .DEPTH(1 << ROOM_LOG2)) room (
        .clk(clk),
        .rst(rst),
        .s_axis_tdata(found_word),
        .s_axis_tvalid(valids[DEPTH_LOG2]),
        .s_axis_tready(),
        .m_axis_tdata({m_axis_upper, m_axis_tuser[DEPTH_LOG2], m_axis_tkeep, m_axis_tlast, m_axis_tuser[DEPTH_LOG2-1:0], m_axis_tdata}),
        .m_axis_tvalid(m_axis_tvalid),
        .m_axis_tready(m_axis_tready),
        .count()
    );
    /* verilator lint_on PINCONNECTEMPTY */

endmodule

`default_nettype wire
