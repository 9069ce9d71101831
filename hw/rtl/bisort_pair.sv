// Two probers that share a slice of a batch: one looks its lower bounds up, the other its upper bounds (PanJoin, III-E and IV).
//
// A start reads the slice of both streams of bounds, or of the one stream of keys in mode BAND, and is done when the positions of
// both streams have been written. Both streams share one partitioner, thus one copy of the index: it takes a bound per cycle, from either
// in turn, and to scan the partitions takes longer than to find them. Two readers and two writers go to the cluster's memory port; words of
// partitions come by two readers that the cluster gives, since it may use them for other things too.

`default_nettype none

// One batch at a time, so the readers are always ready for it.
/* verilator lint_off PINCONNECTEMPTY */

module bisort_pair #(
    // Bits of a key: 32 or 64.
    parameter KEY_W = 64,
    // Words compared per cycle by each prober: 1, 2, 4 or 8.
    parameter W = 4,
    // Samples per beat of the index: 1, 2, 4, 8 or 16.
    parameter INDEX_W = 4,
    // Samples that fit on the chip: a power of two. Each pair has a copy of the index.
    parameter INDEX_DEPTH = 65536,
    // Bits of the memory port and of addresses, beats of a burst: as in axi_reader.
    parameter DATA_W = 128 * W,
    parameter ADDR_W = 40,
    parameter BURST = 16,
    // Partitions that may be under way to a prober: a power of two.
    parameter PENDING = 64,
    // Bits of a beat's address, and of a burst's length.
    localparam BEAT_W = ADDR_W - $clog2(DATA_W / 8),
    localparam LEN_W = $clog2(BURST),
    // Bits of what is counted in a cycle.
    localparam STEP_W = $clog2(W) + 1
) (
    input  wire                     clk,
    input  wire                     rst,

    input  wire                     start,
    // The slice, which is not empty: where its bounds and their positions are.
    input  wire [ADDR_W-1:0]        low_addr,
    input  wire [ADDR_W-1:0]        low_last,
    input  wire [ADDR_W-1:0]        high_addr,
    input  wire [ADDR_W-1:0]        high_last,
    input  wire [ADDR_W-1:0]        starts_addr,
    input  wire [ADDR_W-1:0]        ends_addr,
    input  wire                     band,
    input  wire [KEY_W-1:0]         below,
    input  wire [KEY_W-1:0]         above,
    input  wire [KEY_W-1:0]         least,
    input  wire [KEY_W-1:0]         most,
    // The run.
    input  wire [ADDR_W-1:0]        words_addr,
    input  wire [ADDR_W-1:0]        words_last,
    input  wire [$clog2(INDEX_DEPTH)-1:0] last_partition,
    input  wire [4:0]               step_log2,
    input  wire                     drop,

    input  wire [INDEX_W*KEY_W-1:0] s_index_tdata,
    input  wire [INDEX_W-1:0]       s_index_tkeep,
    input  wire                     s_index_tlast,
    input  wire                     s_index_tvalid,
    output wire                     s_index_tready,

    // Partitions wanted for lower and for upper bounds, and their words, as bisort_probe_stream says.
    output wire [2*ADDR_W-1:0]      words_cmd_addr,
    output wire [2*ADDR_W-1:0]      words_cmd_last,
    output wire [1:0]               words_cmd_valid,
    input  wire [1:0]               words_cmd_ready,
    input  wire [2*W*KEY_W-1:0]     s_words_tdata,
    input  wire [2*W-1:0]           s_words_tkeep,
    input  wire [1:0]               s_words_tlast,
    input  wire [1:0]               s_words_tvalid,
    output wire [1:0]               s_words_tready,
    input  wire [1:0]               words_busy,

    // Readers: 0 lower bounds or keys, 1 upper bounds. Writers: 0 starts, 1 ends.
    output wire [2*BEAT_W-1:0]      m_axi_araddr,
    output wire [2*LEN_W-1:0]       m_axi_arlen,
    output wire [1:0]               m_axi_arvalid,
    input  wire [1:0]               m_axi_arready,
    input  wire [DATA_W-1:0]        m_axi_rdata,
    input  wire                     m_axi_rlast,
    input  wire [1:0]               m_axi_rvalid,
    output wire [2*BEAT_W-1:0]      m_axi_awaddr,
    output wire [2*LEN_W-1:0]       m_axi_awlen,
    output wire [1:0]               m_axi_awvalid,
    input  wire [1:0]               m_axi_awready,
    output wire [2*DATA_W-1:0]      m_axi_wdata,
    output wire [2*DATA_W/32-1:0]   m_axi_wstrb,
    output wire [1:0]               m_axi_wlast,
    output wire [1:0]               m_axi_wvalid,
    input  wire [1:0]               m_axi_wready,
    input  wire [1:0]               m_axi_bvalid,
    // For the sums of bounds and positions, as axi_reader and axi_writer say.
    output wire [2*DATA_W/32-1:0]   sum_keep,
    output wire [1:0]               sum_read_first,
    output wire [1:0]               sum_write_first,

    output wire                     busy,
    // What 8 counters count in this cycle, in the order of the registers from LOW_ROWS on; the last two are free.
    output wire [8*STEP_W-1:0]      steps
);

    // ---- Bounds: read, made, and handed to the two streams.

    wire [2*KEY_W-1:0] read_tdata, bound_tdata;
    wire [1:0] read_tkeep, read_tlast, read_tvalid, read_tready;
    wire [1:0] bound_tkeep, bound_tlast, bound_tvalid, bound_tready;
    wire [1:0] reader_busy, stream_busy;
    wire [1:0] rows, partitions, starved;

    bisort_boundary #(
        .KEY_W(KEY_W)
    ) boundary (
        .clk(clk),
        .rst(rst),
        .band(band),
        .below(below),
        .above(above),
        .least(least),
        .most(most),
        .s_axis_low_tdata(read_tdata[0 +: KEY_W]),
        .s_axis_low_tkeep(read_tkeep[0]),
        .s_axis_low_tlast(read_tlast[0]),
        .s_axis_low_tvalid(read_tvalid[0]),
        .s_axis_low_tready(read_tready[0]),
        .s_axis_high_tdata(read_tdata[KEY_W +: KEY_W]),
        .s_axis_high_tkeep(read_tkeep[1]),
        .s_axis_high_tlast(read_tlast[1]),
        .s_axis_high_tvalid(read_tvalid[1]),
        .s_axis_high_tready(read_tready[1]),
        .m_axis_low_tdata(bound_tdata[0 +: KEY_W]),
        .m_axis_low_tkeep(bound_tkeep[0]),
        .m_axis_low_tlast(bound_tlast[0]),
        .m_axis_low_tvalid(bound_tvalid[0]),
        .m_axis_low_tready(bound_tready[0]),
        .m_axis_high_tdata(bound_tdata[KEY_W +: KEY_W]),
        .m_axis_high_tkeep(bound_tkeep[1]),
        .m_axis_high_tlast(bound_tlast[1]),
        .m_axis_high_tvalid(bound_tvalid[1]),
        .m_axis_high_tready(bound_tready[1])
    );

    // ---- Their partitions: streams take turns.

    localparam PART_W = $clog2(INDEX_DEPTH);
    wire [KEY_W-1:0] found_tdata;
    wire [PART_W:0] found_tuser;
    wire found_tkeep, found_tlast, found_upper, found_tvalid;
    wire [1:0] found_tready;
    reg upper_reg;    // the bound that was taken last was an upper one
    wire upper = bound_tvalid[1] && !(bound_tvalid[0] && upper_reg);
    wire search_ready;

    assign bound_tready = {search_ready && upper, search_ready && !upper};

    always @(posedge clk) begin
        if (search_ready && |bound_tvalid) upper_reg <= upper;
        if (rst) upper_reg <= 1'b0;
    end

    bisort_partitioner #(
        .KEY_W(KEY_W),
        .W(INDEX_W),
        .INDEX_DEPTH(INDEX_DEPTH)
    ) partitioner (
        .clk(clk),
        .rst(rst),
        .upper(upper),
        .drop(drop),
        .s_index_tdata(s_index_tdata),
        .s_index_tkeep(s_index_tkeep),
        .s_index_tlast(s_index_tlast),
        .s_index_tvalid(s_index_tvalid),
        .s_index_tready(s_index_tready),
        .s_axis_tdata(upper ? bound_tdata[KEY_W +: KEY_W] : bound_tdata[0 +: KEY_W]),
        .s_axis_tkeep(upper ? bound_tkeep[1] : bound_tkeep[0]),
        .s_axis_tlast(upper ? bound_tlast[1] : bound_tlast[0]),
        .s_axis_tvalid(|bound_tvalid),
        .s_axis_tready(search_ready),
        .m_axis_tdata(found_tdata),
        .m_axis_tuser(found_tuser),
        .m_axis_tkeep(found_tkeep),
        .m_axis_tlast(found_tlast),
        .m_axis_upper(found_upper),
        .m_axis_tvalid(found_tvalid),
        .m_axis_tready(found_upper ? found_tready[1] : found_tready[0])
    );

    // ---- Their words and positions.

    genvar k;
    generate
        for (k = 0; k < 2; k = k + 1) begin : stream
            axi_reader #(
                .ELEM_W(KEY_W),
                .W(1),
                .DATA_W(DATA_W),
                .ADDR_W(ADDR_W),
                .BURST(BURST),
                .FIFO_BEATS(2 * BURST)
            ) bound_reader (
                .clk(clk),
                .rst(rst),
                .cmd_addr(k == 0 ? low_addr : high_addr),
                .cmd_last(k == 0 ? low_last : high_last),
                .cmd_empty(1'b0),
                .cmd_valid(start && !(k == 1 && band)),
                .cmd_ready(),
                .m_axis_tdata(read_tdata[k*KEY_W +: KEY_W]),
                .m_axis_tkeep(read_tkeep[k]),
                .m_axis_tlast(read_tlast[k]),
                .m_axis_tvalid(read_tvalid[k]),
                .m_axis_tready(read_tready[k]),
                .m_axi_araddr(m_axi_araddr[k*BEAT_W +: BEAT_W]),
                .m_axi_arlen(m_axi_arlen[k*LEN_W +: LEN_W]),
                .m_axi_arvalid(m_axi_arvalid[k]),
                .m_axi_arready(m_axi_arready[k]),
                .m_axi_rdata(m_axi_rdata),
                .m_axi_rlast(m_axi_rlast),
                .m_axi_rvalid(m_axi_rvalid[k]),
                .sum_keep(sum_keep[k*(DATA_W/32) +: DATA_W/32]),
                .sum_first(sum_read_first[k]),
                .busy(reader_busy[k])
            );

            bisort_probe_stream #(
                .KEY_W(KEY_W),
                .W(W),
                .INDEX_DEPTH(INDEX_DEPTH),
                .DATA_W(DATA_W),
                .ADDR_W(ADDR_W),
                .BURST(BURST),
                .PENDING(PENDING)
            ) probing (
                .clk(clk),
                .rst(rst),
                .upper(k != 0),
                .start(start),
                .out_addr(k == 0 ? starts_addr : ends_addr),
                .words_addr(words_addr),
                .words_last(words_last),
                .last_partition(last_partition),
                .step_log2(step_log2),
                .s_axis_tdata(found_tdata),
                .s_axis_tuser(found_tuser),
                .s_axis_tkeep(found_tkeep),
                .s_axis_tlast(found_tlast),
                .s_axis_tvalid(found_tvalid && found_upper == (k != 0)),
                .s_axis_tready(found_tready[k]),
                .words_cmd_addr(words_cmd_addr[k*ADDR_W +: ADDR_W]),
                .words_cmd_last(words_cmd_last[k*ADDR_W +: ADDR_W]),
                .words_cmd_valid(words_cmd_valid[k]),
                .words_cmd_ready(words_cmd_ready[k]),
                .s_words_tdata(s_words_tdata[k*W*KEY_W +: W*KEY_W]),
                .s_words_tkeep(s_words_tkeep[k*W +: W]),
                .s_words_tlast(s_words_tlast[k]),
                .s_words_tvalid(s_words_tvalid[k]),
                .s_words_tready(s_words_tready[k]),
                .words_busy(words_busy[k]),
                .m_axi_awaddr(m_axi_awaddr[k*BEAT_W +: BEAT_W]),
                .m_axi_awlen(m_axi_awlen[k*LEN_W +: LEN_W]),
                .m_axi_awvalid(m_axi_awvalid[k]),
                .m_axi_awready(m_axi_awready[k]),
                .m_axi_wdata(m_axi_wdata[k*DATA_W +: DATA_W]),
                .m_axi_wstrb(m_axi_wstrb[k*(DATA_W/32) +: DATA_W/32]),
                .m_axi_wlast(m_axi_wlast[k]),
                .m_axi_wvalid(m_axi_wvalid[k]),
                .m_axi_wready(m_axi_wready[k]),
                .m_axi_bvalid(m_axi_bvalid[k]),
                .sum_first(sum_write_first[k]),
                .busy(stream_busy[k]),
                .row(rows[k]),
                .partition(partitions[k]),
                .starved(starved[k])
            );
        end
    endgenerate

    assign busy = |reader_busy || |stream_busy;
    wire [7:0] once = {2'd0, starved, partitions, rows};

    generate
        for (k = 0; k < 8; k = k + 1) begin : event_step
            assign steps[k*STEP_W +: STEP_W] = {{(STEP_W-1){1'b0}}, once[k]};
        end
    endgenerate

endmodule

/* verilator lint_on PINCONNECTEMPTY */

`default_nettype wire
