// One stream of bounds, lower or upper, through a prober, with the DMA for positions (PanJoin, IV, Figure 9).
//
// Bounds come in with their partitions; partitions are asked for as the prober wants them, each one once, from a reader outside, which
// brings their words in that order; positions are written in the order of the bounds.
// Limits: one batch at a time; everything that describes the run is steady while a batch is under way.

`default_nettype none

// One batch at a time, so the writer is always ready for it. Addresses end within the memory.
/* verilator lint_off PINCONNECTEMPTY */
/* verilator lint_off UNUSEDSIGNAL */

module bisort_probe_stream #(
    // Bits of a key: 32 or 64.
    parameter KEY_W = 64,
    // Words compared per cycle: 1, 2, 4 or 8.
    parameter W = 4,
    // Samples that fit on the chip: a power of two.
    parameter INDEX_DEPTH = 65536,
    // Bits of the memory port and of addresses, beats of a burst: as in axi_reader.
    parameter DATA_W = 128 * W,
    parameter ADDR_W = 40,
    parameter BURST = 16,
    // Partitions that may be under way to the prober: a power of two. They hide the memory's latency.
    parameter PENDING = 64,
    // Bits of a beat's address, and of a burst's length.
    localparam BEAT_W = ADDR_W - $clog2(DATA_W / 8),
    localparam LEN_W = $clog2(BURST)
) (
    input  wire                     clk,
    input  wire                     rst,

    // Upper bounds, for which equal words lie before the bound; steady for ever.
    input  wire                     upper,
    // A batch: where its positions go.
    input  wire                     start,
    input  wire [ADDR_W-1:0]        out_addr,
    // The run: where its words are, and its last partition.
    input  wire [ADDR_W-1:0]        words_addr,
    input  wire [ADDR_W-1:0]        words_last,
    input  wire [$clog2(INDEX_DEPTH)-1:0] last_partition,
    input  wire [4:0]               step_log2,

    // Bounds as bisort_partitioner gives them.
    input  wire [KEY_W-1:0]         s_axis_tdata,
    input  wire [$clog2(INDEX_DEPTH):0] s_axis_tuser,
    input  wire                     s_axis_tkeep,
    input  wire                     s_axis_tlast,
    input  wire                     s_axis_tvalid,
    output wire                     s_axis_tready,

    // Partitions wanted, as axi_reader takes them, their words, and whether any are under way.
    output wire [ADDR_W-1:0]        words_cmd_addr,
    output wire [ADDR_W-1:0]        words_cmd_last,
    output wire                     words_cmd_valid,
    input  wire                     words_cmd_ready,
    input  wire [W*KEY_W-1:0]       s_words_tdata,
    input  wire [W-1:0]             s_words_tkeep,
    input  wire                     s_words_tlast,
    input  wire                     s_words_tvalid,
    output wire                     s_words_tready,
    input  wire                     words_busy,

    output wire [BEAT_W-1:0]        m_axi_awaddr,
    output wire [LEN_W-1:0]         m_axi_awlen,
    output wire                     m_axi_awvalid,
    input  wire                     m_axi_awready,
    output wire [DATA_W-1:0]        m_axi_wdata,
    output wire [DATA_W/32-1:0]     m_axi_wstrb,
    output wire                     m_axi_wlast,
    output wire                     m_axi_wvalid,
    input  wire                     m_axi_wready,
    input  wire                     m_axi_bvalid,
    // With a beat of positions: it is the first.
    output wire                     sum_first,

    output wire                     busy,
    // In this cycle a position is given, a partition is asked for, the prober waits for words.
    output wire                     row,
    output wire                     partition,
    output wire                     starved
);

    localparam PART_W = $clog2(INDEX_DEPTH);
    localparam BYTES_LOG2 = $clog2(KEY_W / 8);

    // ---- The prober and the words it asks for.

    wire [PART_W-1:0] wanted;
    wire [31:0] wanted_first;
    wire [31:0] place_tdata;
    wire place_tkeep, place_tlast, place_tvalid, place_tready;

    bisort_prober #(
        .KEY_W(KEY_W),
        .W(W),
        .PART_W(PART_W),
        .PENDING(PENDING)
    ) prober (
        .clk(clk),
        .rst(rst),
        .upper(upper),
        .step_log2(step_log2),
        .s_axis_tdata(s_axis_tdata),
        .s_axis_tuser(s_axis_tuser),
        .s_axis_tkeep(s_axis_tkeep),
        .s_axis_tlast(s_axis_tlast),
        .s_axis_tvalid(s_axis_tvalid),
        .s_axis_tready(s_axis_tready),
        .m_req_tdata(wanted),
        .m_req_first(wanted_first),
        .m_req_tvalid(words_cmd_valid),
        .m_req_tready(words_cmd_ready),
        .s_words_tdata(s_words_tdata),
        .s_words_tkeep(s_words_tkeep),
        .s_words_tlast(s_words_tlast),
        .s_words_tvalid(s_words_tvalid),
        .s_words_tready(s_words_tready),
        .m_axis_tdata(place_tdata),
        .m_axis_tkeep(place_tkeep),
        .m_axis_tlast(place_tlast),
        .m_axis_tvalid(place_tvalid),
        .m_axis_tready(place_tready)
    );

    wire [31:0] step_mask = (32'd1 << step_log2) - 32'd1;
    wire [63:0] first_bytes = {32'd0, wanted_first} << BYTES_LOG2;
    wire [63:0] last_bytes = {32'd0, wanted_first | step_mask} << BYTES_LOG2;

    assign words_cmd_addr = words_addr + first_bytes[ADDR_W-1:0];
    assign words_cmd_last = wanted == last_partition ? words_last : words_addr + last_bytes[ADDR_W-1:0];

    // ---- Positions.

    wire writer_busy;

    axi_writer #(
        .ELEM_W(32),
        .W(1),
        .DATA_W(DATA_W),
        .ADDR_W(ADDR_W),
        .BURST(BURST)
    ) position_writer (
        .clk(clk),
        .rst(rst),
        .cmd_addr(out_addr),
        .cmd_valid(start),
        .cmd_ready(),
        .s_axis_tdata(place_tdata),
        .s_axis_tkeep(place_tkeep),
        .s_axis_tlast(place_tlast),
        .s_axis_tvalid(place_tvalid),
        .s_axis_tready(place_tready),
        .m_axi_awaddr(m_axi_awaddr),
        .m_axi_awlen(m_axi_awlen),
        .m_axi_awvalid(m_axi_awvalid),
        .m_axi_awready(m_axi_awready),
        .m_axi_wdata(m_axi_wdata),
        .m_axi_wstrb(m_axi_wstrb),
        .m_axi_wlast(m_axi_wlast),
        .m_axi_wvalid(m_axi_wvalid),
        .m_axi_wready(m_axi_wready),
        .m_axi_bvalid(m_axi_bvalid),
        .sum_first(sum_first),
        .busy(writer_busy)
    );

    assign busy = writer_busy;

    assign row = place_tvalid && place_tready && place_tkeep;
    assign partition = words_cmd_valid && words_cmd_ready;
    assign starved = s_words_tready && !s_words_tvalid && words_busy;

endmodule

/* verilator lint_on PINCONNECTEMPTY */
/* verilator lint_on UNUSEDSIGNAL */

`default_nettype wire
