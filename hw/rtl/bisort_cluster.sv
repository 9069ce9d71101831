// One memory port with a merger, an indexer and some pairs of probers behind it (PanJoin, IV, Figure 7).
//
// MERGE: four readers bring words and ids of a slice of either run, the merger makes one of them, the indexer samples it as it goes
// by, three writers take words, ids and samples. INDEX: words go from the first reader straight past the indexer; only samples are
// written. PROBE: see bisort_pair; words of partitions for the first pair come by the readers that bring words to the merger. All share the
// port: readers and writers in turn.
// Limits: one start at a time, and the engine waits for `busy` to fall; what describes the job is steady while it is under way.

`default_nettype none

// One job at a time, so readers and writers are always ready for it; words and ids end together, and writers count by themselves.
/* verilator lint_off PINCONNECTEMPTY */
/* verilator lint_off UNUSEDSIGNAL */

module bisort_cluster #(
    // Bits of a key: 32 or 64. Ids have 32 bits.
    parameter KEY_W = 64,
    // Tuples merged and words compared per cycle: 1, 2, 4 or 8.
    parameter W = 4,
    // Pairs of probers here: 0 or more.
    parameter PAIRS = 1,
    // Samples per beat of the index: 1, 2, 4, 8 or 16; samples that fit on the chip: a power of two, 16 to 1048576.
    parameter INDEX_W = 4,
    parameter INDEX_DEPTH = 65536,
    // Bits of the memory port: a power of two, at least W * KEY_W. A merger needs W * (KEY_W + 32) bits each way and cycle.
    parameter DATA_W = 128 * W,
    // Bits of a byte address: 16 to 64.
    parameter ADDR_W = 40,
    // Beats of the longest burst: as in axi_reader.
    parameter BURST = 16,
    // Beats that may be under way to each reader of the merger and each prober, and partitions per prober: powers of two.
    parameter FIFO_BEATS = 64,
    parameter PENDING = 64,
    // Bits of an AXI id: PAIRS * 4 + 3 readers must fit, and 5; at most 8.
    parameter AXI_ID_W = 8,
    // The vectors of pairs have at least one entry, which stays unused without pairs.
    localparam PAIR_PORTS = PAIRS > 0 ? PAIRS : 1,
    // Bits of a beat's address, and of a burst's length.
    localparam BEAT_W = ADDR_W - $clog2(DATA_W / 8),
    localparam LEN_W = $clog2(BURST),
    // Bits of what is counted in a cycle.
    localparam STEP_W = $clog2(W) + 1
) (
    input  wire                      clk,
    input  wire                      rst,

    // A start of MERGE or INDEX, or of a pair for PROBE; where its slices lie, as bisort_slicer says.
    input  wire                      start,
    input  wire                      indexing,
    input  wire [PAIR_PORTS-1:0]     pair_start,
    input  wire [ADDR_W-1:0]         a_words_at,
    input  wire [ADDR_W-1:0]         a_words_last,
    input  wire [ADDR_W-1:0]         a_ids_at,
    input  wire [ADDR_W-1:0]         a_ids_last,
    input  wire                      a_empty,
    input  wire [ADDR_W-1:0]         b_words_at,
    input  wire [ADDR_W-1:0]         b_words_last,
    input  wire [ADDR_W-1:0]         b_ids_at,
    input  wire [ADDR_W-1:0]         b_ids_last,
    input  wire                      b_empty,
    input  wire [ADDR_W-1:0]         out_words_at,
    input  wire [ADDR_W-1:0]         out_ids_at,
    input  wire [ADDR_W-1:0]         index_at,
    input  wire [31:0]               out_first,
    // The job; of PROBE the run and its last partition.
    input  wire                      with_index,
    input  wire [ADDR_W-1:0]         words_addr,
    input  wire [ADDR_W-1:0]         words_last,
    input  wire [$clog2(INDEX_DEPTH)-1:0] last_partition,
    input  wire [4:0]                step_log2,
    input  wire                      band,
    input  wire [KEY_W-1:0]          below,
    input  wire [KEY_W-1:0]          above,
    input  wire [KEY_W-1:0]          least,
    input  wire [KEY_W-1:0]          most,
    input  wire                      drop,

    // The on-chip index comes from the engine to all pairs alike.
    input  wire [INDEX_W*KEY_W-1:0]  s_index_tdata,
    input  wire [INDEX_W-1:0]        s_index_tkeep,
    input  wire                      s_index_tlast,
    input  wire                      s_index_tvalid,
    output wire                      s_index_tready,

    // A further reader that shares the port.
    input  wire [BEAT_W-1:0]         s_axi_araddr,
    input  wire [LEN_W-1:0]          s_axi_arlen,
    input  wire                      s_axi_arvalid,
    output wire                      s_axi_arready,
    output wire                      s_axi_rvalid,
    input  wire [DATA_W/32-1:0]      s_sum_keep,
    input  wire                      s_sum_first,

    output wire [AXI_ID_W-1:0]       m_axi_arid,
    output wire [BEAT_W-1:0]         m_axi_araddr,
    output wire [LEN_W-1:0]          m_axi_arlen,
    output wire                      m_axi_arvalid,
    input  wire                      m_axi_arready,
    input  wire [AXI_ID_W-1:0]       m_axi_rid,
    input  wire [DATA_W-1:0]         m_axi_rdata,
    input  wire [1:0]                m_axi_rresp,
    input  wire                      m_axi_rlast,
    input  wire                      m_axi_rvalid,
    output wire                      m_axi_rready,
    output wire [AXI_ID_W-1:0]       m_axi_awid,
    output wire [BEAT_W-1:0]         m_axi_awaddr,
    output wire [LEN_W-1:0]          m_axi_awlen,
    output wire                      m_axi_awvalid,
    input  wire                      m_axi_awready,
    output wire [DATA_W-1:0]         m_axi_wdata,
    output wire [DATA_W/32-1:0]      m_axi_wstrb,
    output wire                      m_axi_wlast,
    output wire                      m_axi_wvalid,
    input  wire                      m_axi_wready,
    input  wire [AXI_ID_W-1:0]       m_axi_bid,
    input  wire [1:0]                m_axi_bresp,
    input  wire                      m_axi_bvalid,
    output wire                      m_axi_bready,

    // Before a soft reset: begin no further burst, and whether all that were begun are answered.
    input  wire                      hold,
    output wire                      idle,

    output wire                      busy,
    input  wire                      clear,
    output wire                      error,
    // The sum of a reader or writer, by number.
    input  wire [AXI_ID_W-1:0]       sum_asked,
    input  wire                      sum_of_writer,
    output wire [31:0]               sum,
    // What 8 counters each count in this cycle, in the order of the registers from MERGER_ROWS and LOW_ROWS on.
    output wire [8*STEP_W-1:0]       steps,
    output wire [PAIR_PORTS*8*STEP_W-1:0] pair_steps
);

    localparam TUPLE_W = KEY_W + 32;
    localparam READERS = PAIRS > 0 ? 3 + 4 * PAIRS : 5;
    // The first reader of partitions that does nothing else.
    localparam WORDS_AT = 5 + 2 * PAIRS;
    localparam WRITERS = 3 + 2 * PAIRS;
    localparam WORDS = DATA_W / 32;
    // Bits of a reader's or writer's number, which is its AXI id.
    localparam NUMBER_W = $clog2(READERS);

    param_check #(.OK(READERS <= (1 << AXI_ID_W)), .MESSAGE("AXI_ID_W is too small for the pairs")) id_check ();
    param_check #(.OK(AXI_ID_W <= 8), .MESSAGE("AXI_ID_W must be at most 8")) id_limit_check ();
    param_check #(
        .OK(INDEX_DEPTH >= 16 && INDEX_DEPTH <= 1048576 && INDEX_DEPTH == (1 << $clog2(INDEX_DEPTH))),
        .MESSAGE("INDEX_DEPTH must be a power of two, 16 to 1048576")
    ) depth_check ();
    param_check #(.OK(DATA_W >= W * KEY_W), .MESSAGE("DATA_W must be at least W * KEY_W")) data_check ();

    // ---- The port: readers 0-3 merger, 0 and 2 the first pair's words too, 4 from outside, then two per pair for bounds, then two per
    // further pair for words; writers 0-2 merger, then two per pair.

    wire [READERS*BEAT_W-1:0] araddr;
    wire [READERS*LEN_W-1:0] arlen;
    wire [READERS-1:0] arvalid, arready, rvalid, read_first;
    wire [READERS*WORDS-1:0] read_keep;
    wire [WRITERS*BEAT_W-1:0] awaddr;
    wire [WRITERS*LEN_W-1:0] awlen;
    wire [WRITERS-1:0] awvalid, awready, wlast, wvalid, wready, bvalid, write_first;
    wire [WRITERS*DATA_W-1:0] wdata;
    wire [WRITERS*WORDS-1:0] wstrb;
    wire [NUMBER_W-1:0] arid, awid, wid;
    wire reads_idle, writes_idle;

    axi_read_arbiter #(
        .PORTS(READERS),
        .AXI_ID_W(NUMBER_W),
        .BEAT_W(BEAT_W),
        .LEN_W(LEN_W),
        // A burst has at least a beat.
        .OPEN(READERS * FIFO_BEATS)
    ) read_arbiter (
        .clk(clk),
        .rst(rst),
        .hold(hold),
        .idle(reads_idle),
        .s_axi_araddr(araddr),
        .s_axi_arlen(arlen),
        .s_axi_arvalid(arvalid),
        .s_axi_arready(arready),
        .s_axi_rvalid(rvalid),
        .m_axi_arid(arid),
        .m_axi_araddr(m_axi_araddr),
        .m_axi_arlen(m_axi_arlen),
        .m_axi_arvalid(m_axi_arvalid),
        .m_axi_arready(m_axi_arready),
        .m_axi_rid(m_axi_rid[NUMBER_W-1:0]),
        .m_axi_rlast(m_axi_rlast),
        .m_axi_rvalid(m_axi_rvalid),
        .m_axi_rready(m_axi_rready)
    );

    axi_write_arbiter #(
        .PORTS(WRITERS),
        .DATA_W(DATA_W),
        .AXI_ID_W(NUMBER_W),
        .BEAT_W(BEAT_W),
        .LEN_W(LEN_W),
        // As many as a writer announces before it waits for answers.
        .OPEN(WRITERS * 33)
    ) write_arbiter (
        .clk(clk),
        .rst(rst),
        .hold(hold),
        .idle(writes_idle),
        .s_axi_awaddr(awaddr),
        .s_axi_awlen(awlen),
        .s_axi_awvalid(awvalid),
        .s_axi_awready(awready),
        .s_axi_wdata(wdata),
        .s_axi_wstrb(wstrb),
        .s_axi_wlast(wlast),
        .s_axi_wvalid(wvalid),
        .s_axi_wready(wready),
        .s_axi_bvalid(bvalid),
        .m_axi_awid(awid),
        .m_axi_awaddr(m_axi_awaddr),
        .m_axi_awlen(m_axi_awlen),
        .m_axi_awvalid(m_axi_awvalid),
        .m_axi_awready(m_axi_awready),
        .m_axi_wdata(m_axi_wdata),
        .m_axi_wstrb(m_axi_wstrb),
        .m_axi_wlast(m_axi_wlast),
        .m_axi_wvalid(m_axi_wvalid),
        .m_axi_wready(m_axi_wready),
        .m_axi_wid(wid),
        .m_axi_bid(m_axi_bid[NUMBER_W-1:0]),
        .m_axi_bvalid(m_axi_bvalid),
        .m_axi_bready(m_axi_bready)
    );

    assign m_axi_arid = {{(AXI_ID_W-NUMBER_W){1'b0}}, arid};
    assign m_axi_awid = {{(AXI_ID_W-NUMBER_W){1'b0}}, awid};
    assign araddr[4*BEAT_W +: BEAT_W] = s_axi_araddr;
    assign arlen[4*LEN_W +: LEN_W] = s_axi_arlen;
    assign arvalid[4] = s_axi_arvalid;
    assign s_axi_arready = arready[4];
    assign s_axi_rvalid = rvalid[4];
    assign read_keep[4*WORDS +: WORDS] = s_sum_keep;
    assign read_first[4] = s_sum_first;

    // ---- Sums of what goes through the port, each way.

    reg probing_reg;    // the first pair has readers 0 and 2
    reg [WORDS-1:0] sum_keep;
    wire [31:0] read_sum, write_sum;
    integer n;

    always @* begin
        sum_keep = {WORDS{1'b0}};
        for (n = 0; n < READERS; n = n + 1) sum_keep = sum_keep | (rvalid[n] ? read_keep[n*WORDS +: WORDS] : {WORDS{1'b0}});
    end

    axi_sum #(
        .DATA_W(DATA_W),
        .NUMBER_W(NUMBER_W)
    ) read_sums (
        .clk(clk),
        .rst(rst),
        .data(m_axi_rdata),
        .keep(sum_keep),
        .number(m_axi_rid[NUMBER_W-1:0]),
        .first(|(read_first & rvalid)),
        // Words of partitions are not summed.
        .valid(m_axi_rvalid && !(probing_reg && (rvalid[0] || rvalid[2]))),
        .asked(sum_asked[NUMBER_W-1:0]),
        .sum(read_sum)
    );

    axi_sum #(
        .DATA_W(DATA_W),
        .NUMBER_W(NUMBER_W)
    ) write_sums (
        .clk(clk),
        .rst(rst),
        .data(m_axi_wdata),
        .keep(m_axi_wstrb),
        .number(wid),
        .first(|(write_first & wready)),
        .valid(m_axi_wvalid && m_axi_wready),
        .asked(sum_asked[NUMBER_W-1:0]),
        .sum(write_sum)
    );

    assign sum = sum_of_writer ? write_sum : read_sum;

    // ---- Readers: 0 words of a, 1 ids of a, 2 words of b, 3 ids of b.

    wire merge_start = start && !indexing;
    wire [4*ADDR_W-1:0] read_addr = {b_ids_at, b_words_at, a_ids_at, a_words_at};
    wire [4*ADDR_W-1:0] read_last = {b_ids_last, b_words_last, a_ids_last, a_words_last};
    wire [3:0] read_empty = {b_empty, b_empty, a_empty, a_empty};
    wire [3:0] read_start = {{3{merge_start}}, start};
    wire [2*W*KEY_W-1:0] words_tdata;
    wire [2*W*32-1:0] ids_tdata;
    wire [4*W-1:0] read_tkeep;
    wire [3:0] read_tlast, read_tvalid, read_tready, reader_busy;
    // What the first pair wants to be read by readers 0 and 2, and whether it may.
    wire [2*ADDR_W-1:0] words_addr_wanted, words_last_wanted;
    wire [1:0] words_wanted, words_taken, words_tready;

    genvar k, i;
    generate
        for (k = 0; k < 4; k = k + 1) begin : reader
            localparam ELEM_W = k % 2 == 0 ? KEY_W : 32;
            localparam SHARED = k % 2 == 0 && PAIRS > 0;
            wire [W*ELEM_W-1:0] tdata;
            wire [ADDR_W-1:0] addr, last;
            wire empty, valid, ready;

            if (SHARED) begin : command
                assign addr = words_wanted[k/2] ? words_addr_wanted[(k/2)*ADDR_W +: ADDR_W] : read_addr[k*ADDR_W +: ADDR_W];
                assign last = words_wanted[k/2] ? words_last_wanted[(k/2)*ADDR_W +: ADDR_W] : read_last[k*ADDR_W +: ADDR_W];
                assign empty = !words_wanted[k/2] && read_empty[k];
                assign valid = words_wanted[k/2] || read_start[k];
                assign words_taken[k/2] = ready;
            end else begin : command
                assign addr = read_addr[k*ADDR_W +: ADDR_W];
                assign last = read_last[k*ADDR_W +: ADDR_W];
                assign empty = read_empty[k];
                assign valid = read_start[k];
            end

            axi_reader #(
                .ELEM_W(ELEM_W),
                .W(W),
                .DATA_W(DATA_W),
                .ADDR_W(ADDR_W),
                .BURST(BURST),
                .FIFO_BEATS(FIFO_BEATS),
                .QUEUE(SHARED ? PENDING : 1)
            ) dma (
                .clk(clk),
                .rst(rst),
                .cmd_addr(addr),
                .cmd_last(last),
                .cmd_empty(empty),
                .cmd_valid(valid),
                .cmd_ready(ready),
                .m_axis_tdata(tdata),
                .m_axis_tkeep(read_tkeep[k*W +: W]),
                .m_axis_tlast(read_tlast[k]),
                .m_axis_tvalid(read_tvalid[k]),
                .m_axis_tready(read_tready[k]),
                .m_axi_araddr(araddr[k*BEAT_W +: BEAT_W]),
                .m_axi_arlen(arlen[k*LEN_W +: LEN_W]),
                .m_axi_arvalid(arvalid[k]),
                .m_axi_arready(arready[k]),
                .m_axi_rdata(m_axi_rdata),
                .m_axi_rlast(m_axi_rlast),
                .m_axi_rvalid(rvalid[k]),
                .sum_keep(read_keep[k*WORDS +: WORDS]),
                .sum_first(read_first[k]),
                .busy(reader_busy[k])
            );

            if (k % 2 == 0) begin : words
                assign words_tdata[(k/2)*W*KEY_W +: W*KEY_W] = tdata;
            end else begin : ids
                assign ids_tdata[(k/2)*W*32 +: W*32] = tdata;
            end
        end
    endgenerate

    // ---- Words and ids become tuples.

    reg indexing_reg;    // the job under way is an INDEX
    reg active_reg;      // its last beat has not passed yet
    wire [W*TUPLE_W-1:0] a_tuples, b_tuples, bare_tuples;
    wire a_ready, b_ready, direct_ready;
    wire a_valid = read_tvalid[0] && read_tvalid[1] && !indexing_reg;
    wire b_valid = read_tvalid[2] && read_tvalid[3];

    // While the first pair probes there are no ids, so its words pass the merger by.
    assign read_tready[0] = probing_reg ? words_tready[0] : indexing_reg ? direct_ready : a_ready && read_tvalid[1];
    assign read_tready[1] = a_ready && read_tvalid[0];
    assign read_tready[2] = probing_reg ? words_tready[1] : b_ready && read_tvalid[3];
    assign read_tready[3] = b_ready && read_tvalid[2];

    generate
        for (i = 0; i < W; i = i + 1) begin : lane
            assign a_tuples[i*TUPLE_W +: TUPLE_W] = {words_tdata[i*KEY_W +: KEY_W], ids_tdata[i*32 +: 32]};
            assign b_tuples[i*TUPLE_W +: TUPLE_W] = {words_tdata[(W+i)*KEY_W +: KEY_W], ids_tdata[(W+i)*32 +: 32]};
            assign bare_tuples[i*TUPLE_W +: TUPLE_W] = {words_tdata[i*KEY_W +: KEY_W], 32'd0};
        end
    endgenerate

    // ---- Merger and indexer.

    wire [W*TUPLE_W-1:0] merged_tdata, passed_tdata;
    wire [W-1:0] merged_tkeep, passed_tkeep;
    wire merged_tlast, merged_tvalid, merged_tready, passed_tlast, passed_tvalid, passed_tready;
    wire [KEY_W-1:0] sample_tdata;
    wire sample_tkeep, sample_tlast, sample_tvalid, sample_tready;
    reg [31:0] first_reg;
    reg with_index_reg;

    bisort_merger #(
        .KEY_W(KEY_W),
        .ID_W(32),
        .W(W)
    ) merger (
        .clk(clk),
        .rst(rst),
        .s_axis_a_tdata(a_tuples),
        .s_axis_a_tkeep(read_tkeep[0 +: W]),
        .s_axis_a_tlast(read_tlast[0]),
        .s_axis_a_tvalid(a_valid),
        .s_axis_a_tready(a_ready),
        .s_axis_b_tdata(b_tuples),
        .s_axis_b_tkeep(read_tkeep[2*W +: W]),
        .s_axis_b_tlast(read_tlast[2]),
        .s_axis_b_tvalid(b_valid),
        .s_axis_b_tready(b_ready),
        .m_axis_tdata(merged_tdata),
        .m_axis_tkeep(merged_tkeep),
        .m_axis_tlast(merged_tlast),
        .m_axis_tvalid(merged_tvalid),
        .m_axis_tready(merged_tready)
    );

    wire in_tvalid = indexing_reg ? read_tvalid[0] : merged_tvalid;
    wire in_tready;
    wire [W-1:0] in_tkeep = indexing_reg ? read_tkeep[0 +: W] : merged_tkeep;
    wire in_tlast = indexing_reg ? read_tlast[0] : merged_tlast;

    assign direct_ready = in_tready;
    assign merged_tready = in_tready && !indexing_reg;

    bisort_indexer #(
        .KEY_W(KEY_W),
        .ID_W(32),
        .W(W)
    ) indexer (
        .clk(clk),
        .rst(rst),
        .step_log2(step_log2),
        .first(first_reg),
        .s_axis_tdata(indexing_reg ? bare_tuples : merged_tdata),
        .s_axis_tkeep(in_tkeep),
        .s_axis_tlast(in_tlast),
        .s_axis_tvalid(in_tvalid),
        .s_axis_tready(in_tready),
        .m_axis_tdata(passed_tdata),
        .m_axis_tkeep(passed_tkeep),
        .m_axis_tlast(passed_tlast),
        .m_axis_tvalid(passed_tvalid),
        .m_axis_tready(passed_tready),
        .m_index_tdata(sample_tdata),
        .m_index_tkeep(sample_tkeep),
        .m_index_tlast(sample_tlast),
        .m_index_tvalid(sample_tvalid),
        .m_index_tready(sample_tready)
    );

    // ---- Writers: 0 words, 1 ids, 2 samples. Words and ids of a beat are taken together.

    wire [W*KEY_W-1:0] passed_words;
    wire [W*32-1:0] passed_ids;
    wire [2:0] write_tready, writer_busy;
    wire writes = passed_tvalid && !indexing_reg;

    assign passed_tready = indexing_reg || (write_tready[0] && write_tready[1]);
    assign sample_tready = !with_index_reg || write_tready[2];

    generate
        for (i = 0; i < W; i = i + 1) begin : passed
            assign passed_words[i*KEY_W +: KEY_W] = passed_tdata[i*TUPLE_W+32 +: KEY_W];
            assign passed_ids[i*32 +: 32] = passed_tdata[i*TUPLE_W +: 32];
        end
        for (k = 0; k < 3; k = k + 1) begin : writer
            localparam ELEM_W = k == 1 ? 32 : KEY_W;
            localparam LANES = k == 2 ? 1 : W;
            wire [LANES*ELEM_W-1:0] tdata;
            wire [LANES-1:0] tkeep;
            wire tlast, tvalid, go;
            wire [ADDR_W-1:0] addr;

            if (k == 0) begin : words
                assign tdata = passed_words;
                assign tkeep = passed_tkeep;
                assign tlast = passed_tlast;
                assign tvalid = writes && write_tready[1];
                assign addr = out_words_at;
                assign go = merge_start;
            end else if (k == 1) begin : ids
                assign tdata = passed_ids;
                assign tkeep = passed_tkeep;
                assign tlast = passed_tlast;
                assign tvalid = writes && write_tready[0];
                assign addr = out_ids_at;
                assign go = merge_start;
            end else begin : samples
                assign tdata = sample_tdata;
                assign tkeep = sample_tkeep;
                assign tlast = sample_tlast;
                assign tvalid = sample_tvalid && with_index_reg;
                assign addr = index_at;
                assign go = start && with_index;
            end

            axi_writer #(
                .ELEM_W(ELEM_W),
                .W(LANES),
                .DATA_W(DATA_W),
                .ADDR_W(ADDR_W),
                .BURST(BURST)
            ) dma (
                .clk(clk),
                .rst(rst),
                .cmd_addr(addr),
                .cmd_valid(go),
                .cmd_ready(),
                .s_axis_tdata(tdata),
                .s_axis_tkeep(tkeep),
                .s_axis_tlast(tlast),
                .s_axis_tvalid(tvalid),
                .s_axis_tready(write_tready[k]),
                .m_axi_awaddr(awaddr[k*BEAT_W +: BEAT_W]),
                .m_axi_awlen(awlen[k*LEN_W +: LEN_W]),
                .m_axi_awvalid(awvalid[k]),
                .m_axi_awready(awready[k]),
                .m_axi_wdata(wdata[k*DATA_W +: DATA_W]),
                .m_axi_wstrb(wstrb[k*WORDS +: WORDS]),
                .m_axi_wlast(wlast[k]),
                .m_axi_wvalid(wvalid[k]),
                .m_axi_wready(wready[k]),
                .m_axi_bvalid(bvalid[k]),
                .sum_first(write_first[k]),
                .busy(writer_busy[k])
            );
        end
    endgenerate

    // ---- Pairs of probers.

    wire [PAIR_PORTS-1:0] pair_busy, pair_index_tready;
    wire [2*PAIR_PORTS-1:0] words_busy;
    wire index_all = &pair_index_tready;

    assign s_index_tready = index_all;

    generate
        for (k = 0; k < PAIRS; k = k + 1) begin : pair
            wire [2*ADDR_W-1:0] cmd_addr, cmd_last;
            wire [1:0] cmd_valid, cmd_ready, tlast, tvalid, tready;
            wire [2*W*KEY_W-1:0] tdata;
            wire [2*W-1:0] tkeep;

            if (k == 0) begin : shared
                assign {words_addr_wanted, words_last_wanted, words_wanted} = {cmd_addr, cmd_last, cmd_valid};
                assign cmd_ready = words_taken;
                assign tdata = words_tdata;
                assign tkeep = {read_tkeep[2*W +: W], read_tkeep[0 +: W]};
                assign tlast = {read_tlast[2], read_tlast[0]};
                assign tvalid = {read_tvalid[2], read_tvalid[0]} & {2{probing_reg}};
                assign words_tready = tready;
                assign words_busy[1:0] = {reader_busy[2], reader_busy[0]};
            end else begin : shared
                for (i = 0; i < 2; i = i + 1) begin : words
                    localparam HERE = WORDS_AT + 2 * (k - 1) + i;

                    axi_reader #(
                        .ELEM_W(KEY_W),
                        .W(W),
                        .DATA_W(DATA_W),
                        .ADDR_W(ADDR_W),
                        .BURST(BURST),
                        .FIFO_BEATS(FIFO_BEATS),
                        .QUEUE(PENDING)
                    ) dma (
                        .clk(clk),
                        .rst(rst),
                        .cmd_addr(cmd_addr[i*ADDR_W +: ADDR_W]),
                        .cmd_last(cmd_last[i*ADDR_W +: ADDR_W]),
                        .cmd_empty(1'b0),
                        .cmd_valid(cmd_valid[i]),
                        .cmd_ready(cmd_ready[i]),
                        .m_axis_tdata(tdata[i*W*KEY_W +: W*KEY_W]),
                        .m_axis_tkeep(tkeep[i*W +: W]),
                        .m_axis_tlast(tlast[i]),
                        .m_axis_tvalid(tvalid[i]),
                        .m_axis_tready(tready[i]),
                        .m_axi_araddr(araddr[HERE*BEAT_W +: BEAT_W]),
                        .m_axi_arlen(arlen[HERE*LEN_W +: LEN_W]),
                        .m_axi_arvalid(arvalid[HERE]),
                        .m_axi_arready(arready[HERE]),
                        .m_axi_rdata(m_axi_rdata),
                        .m_axi_rlast(m_axi_rlast),
                        .m_axi_rvalid(rvalid[HERE]),
                        .sum_keep(),
                        .sum_first(),
                        .busy(words_busy[2*k+i])
                    );
                    // Words of partitions are not summed: nobody asks for this one.
                    assign read_keep[HERE*WORDS +: WORDS] = {WORDS{1'b0}};
                    assign read_first[HERE] = 1'b0;
                end
            end

            bisort_pair #(
                .KEY_W(KEY_W),
                .W(W),
                .INDEX_W(INDEX_W),
                .INDEX_DEPTH(INDEX_DEPTH),
                .DATA_W(DATA_W),
                .ADDR_W(ADDR_W),
                .BURST(BURST),
                .PENDING(PENDING)
            ) probers (
                .clk(clk),
                .rst(rst),
                .start(pair_start[k]),
                .low_addr(b_words_at),
                .low_last(b_words_last),
                .high_addr(b_ids_at),
                .high_last(b_ids_last),
                .starts_addr(out_words_at),
                .ends_addr(out_ids_at),
                .band(band),
                .below(below),
                .above(above),
                .least(least),
                .most(most),
                .words_addr(words_addr),
                .words_last(words_last),
                .last_partition(last_partition),
                .step_log2(step_log2),
                .drop(drop),
                .s_index_tdata(s_index_tdata),
                .s_index_tkeep(s_index_tkeep),
                .s_index_tlast(s_index_tlast),
                .s_index_tvalid(s_index_tvalid && index_all),
                .s_index_tready(pair_index_tready[k]),
                .words_cmd_addr(cmd_addr),
                .words_cmd_last(cmd_last),
                .words_cmd_valid(cmd_valid),
                .words_cmd_ready(cmd_ready),
                .s_words_tdata(tdata),
                .s_words_tkeep(tkeep),
                .s_words_tlast(tlast),
                .s_words_tvalid(tvalid),
                .s_words_tready(tready),
                .words_busy(words_busy[2*k +: 2]),
                .m_axi_araddr(araddr[(5+2*k)*BEAT_W +: 2*BEAT_W]),
                .m_axi_arlen(arlen[(5+2*k)*LEN_W +: 2*LEN_W]),
                .m_axi_arvalid(arvalid[5+2*k +: 2]),
                .m_axi_arready(arready[5+2*k +: 2]),
                .m_axi_rdata(m_axi_rdata),
                .m_axi_rlast(m_axi_rlast),
                .m_axi_rvalid(rvalid[5+2*k +: 2]),
                .m_axi_awaddr(awaddr[(3+2*k)*BEAT_W +: 2*BEAT_W]),
                .m_axi_awlen(awlen[(3+2*k)*LEN_W +: 2*LEN_W]),
                .m_axi_awvalid(awvalid[3+2*k +: 2]),
                .m_axi_awready(awready[3+2*k +: 2]),
                .m_axi_wdata(wdata[(3+2*k)*DATA_W +: 2*DATA_W]),
                .m_axi_wstrb(wstrb[(3+2*k)*WORDS +: 2*WORDS]),
                .m_axi_wlast(wlast[3+2*k +: 2]),
                .m_axi_wvalid(wvalid[3+2*k +: 2]),
                .m_axi_wready(wready[3+2*k +: 2]),
                .m_axi_bvalid(bvalid[3+2*k +: 2]),
                .sum_keep(read_keep[(5+2*k)*WORDS +: 2*WORDS]),
                .sum_read_first(read_first[5+2*k +: 2]),
                .sum_write_first(write_first[3+2*k +: 2]),
                .busy(pair_busy[k]),
                .steps(pair_steps[k*8*STEP_W +: 8*STEP_W])
            );
        end
        if (PAIRS == 0) begin : no_pair
            assign {words_addr_wanted, words_last_wanted, words_wanted} = 0;
            assign words_taken = 2'b00;
            assign words_tready = 2'b00;
            assign words_busy = 2'b00;
            assign pair_busy = 1'b0;
            assign pair_index_tready = 1'b1;
            assign pair_steps = {(8*STEP_W){1'b0}};
        end
    endgenerate

    // ---- State and counters.

    assign busy = active_reg || |reader_busy || |writer_busy || |pair_busy || |words_busy;

    reg error_reg;    // the memory has answered with an error
    reg [STEP_W-1:0] kept;
    reg [7:0] once;    // events that count as one
    wire in_take = in_tvalid && in_tready;
    integer j;

    always @* begin
        kept = 0;
        for (j = 0; j < W; j = j + 1) kept = kept + {{(STEP_W-1){1'b0}}, in_tkeep[j]};
    end

    always @* begin
        once = 8'd0;
        once[2] = sample_tvalid && sample_tready && sample_tkeep && with_index_reg;
        once[3] = m_axi_rvalid;
        once[4] = m_axi_wvalid && m_axi_wready;
        once[5] = active_reg && !in_tvalid;
        once[6] = active_reg && in_tvalid && !in_tready;
        once[7] = (m_axi_arvalid && !m_axi_arready) || (m_axi_awvalid && !m_axi_awready) || (m_axi_wvalid && !m_axi_wready);
    end

    assign steps[0 +: STEP_W] = in_take && !indexing_reg ? kept : {STEP_W{1'b0}};
    assign steps[STEP_W +: STEP_W] = in_take ? kept : {STEP_W{1'b0}};
    generate
        for (k = 2; k < 8; k = k + 1) begin : event_step
            assign steps[k*STEP_W +: STEP_W] = {{(STEP_W-1){1'b0}}, once[k]};
        end
    endgenerate

    always @(posedge clk) begin
        if (in_take && in_tlast) active_reg <= 1'b0;
        if (clear) error_reg <= 1'b0;
        if ((m_axi_rvalid && m_axi_rresp[1]) || (m_axi_bvalid && m_axi_bresp[1])) error_reg <= 1'b1;
        if (pair_start[0]) begin
            probing_reg <= 1'b1;
            indexing_reg <= 1'b0;
        end
        if (start) begin
            probing_reg <= 1'b0;
            indexing_reg <= indexing;
            with_index_reg <= with_index;
            first_reg <= out_first;
            active_reg <= 1'b1;
        end
        if (rst) begin
            probing_reg <= 1'b0;
            indexing_reg <= 1'b0;
            with_index_reg <= 1'b0;
            active_reg <= 1'b0;
            error_reg <= 1'b0;
        end
    end

    assign error = error_reg;
    assign idle = reads_idle && writes_idle;

endmodule

/* verilator lint_on PINCONNECTEMPTY */
/* verilator lint_on UNUSEDSIGNAL */

`default_nettype wire
