// The BI-Sort engine: mergers, indexers and probers behind AXI4 memory ports, driven by commands through AXI4-Lite registers.
//
// N clusters, each with a memory port, a merger and an indexer; pairs of probers are dealt out to the clusters in turn. A command
// is cut into slices, which the host gives: of a merge by merge path over (word, id), of a probe by numbers of bounds. The registers
// are those of hw/abi.toml; bisort_sequencer says what becomes of a bad command. PanJoin, section IV, Figures 7 to 9.

`default_nettype none

// Registers are written whole by anyone; bursts end where they were asked to; not every bit of a job is used by every shape.
/* verilator lint_off PINCONNECTEMPTY */
/* verilator lint_off UNUSEDSIGNAL */

module bisort_engine #(
    // Bits of a key: 32 or 64.
    parameter KEY_W = 64,
    // Tuples merged per cycle and cluster, and words compared per cycle and prober: 1, 2, 4 or 8.
    parameter W = 4,
    // Clusters, thus mergers and memory ports: 1 to 16.
    parameter CLUSTERS = 2,
    // Probers: an even number, 2 to 32; half of them look lower bounds up, half upper ones.
    parameter PROBERS = 4,
    // Samples that fit on the chip: a power of two, 16 to 1048576. Each pair of probers has INDEX_DEPTH * KEY_W bits for them.
    parameter INDEX_DEPTH = 65536,
    // Bits of a memory port: a power of two, W * KEY_W to 1024.
    parameter DATA_W = 128 * W,
    // Bits of a byte address: 16 to 64. Pointers beyond them are refused.
    parameter ADDR_W = 40,
    // Beats of the longest burst: a power of two, 2 or more, and a burst at most 4096 bytes.
    parameter BURST = 16,
    // Beats that may be under way to each reader of a merger and each prober: a power of two, at least 2 * BURST.
    parameter FIFO_BEATS = 64,
    // Partitions that may be under way to each prober: a power of two, 2 or more.
    parameter PENDING = 64,
    // Commands that wait, and results that wait: as in bisort_registers.
    parameter QUEUE = 4,
    // Bits of an AXI id: must number the readers of a cluster, at most 8.
    parameter AXI_ID_W = 8,
    // What BUILD_HASH shows.
    parameter [63:0] BUILD_HASH = 64'd0
) (
    input  wire                         clk,
    input  wire                         rst,
    // High while a result waits, if enabled.
    output wire                         irq,

    input  wire [11:0]                  s_axil_awaddr,
    input  wire [2:0]                   s_axil_awprot,
    input  wire                         s_axil_awvalid,
    output wire                         s_axil_awready,
    input  wire [31:0]                  s_axil_wdata,
    input  wire [3:0]                   s_axil_wstrb,
    input  wire                         s_axil_wvalid,
    output wire                         s_axil_wready,
    output wire [1:0]                   s_axil_bresp,
    output wire                         s_axil_bvalid,
    input  wire                         s_axil_bready,
    input  wire [11:0]                  s_axil_araddr,
    input  wire [2:0]                   s_axil_arprot,
    input  wire                         s_axil_arvalid,
    output wire                         s_axil_arready,
    output wire [31:0]                  s_axil_rdata,
    output wire [1:0]                   s_axil_rresp,
    output wire                         s_axil_rvalid,
    input  wire                         s_axil_rready,

    // Memory ports, one per cluster, side by side. Bursts are INCR, of full beats; responses may come in any order of ids.
    output wire [CLUSTERS*AXI_ID_W-1:0] m_axi_arid,
    output wire [CLUSTERS*64-1:0]       m_axi_araddr,
    output wire [CLUSTERS*8-1:0]        m_axi_arlen,
    output wire [CLUSTERS*3-1:0]        m_axi_arsize,
    output wire [CLUSTERS*2-1:0]        m_axi_arburst,
    output wire [CLUSTERS-1:0]          m_axi_arvalid,
    input  wire [CLUSTERS-1:0]          m_axi_arready,
    input  wire [CLUSTERS*AXI_ID_W-1:0] m_axi_rid,
    input  wire [CLUSTERS*DATA_W-1:0]   m_axi_rdata,
    input  wire [CLUSTERS*2-1:0]        m_axi_rresp,
    input  wire [CLUSTERS-1:0]          m_axi_rlast,
    input  wire [CLUSTERS-1:0]          m_axi_rvalid,
    output wire [CLUSTERS-1:0]          m_axi_rready,
    output wire [CLUSTERS*AXI_ID_W-1:0] m_axi_awid,
    output wire [CLUSTERS*64-1:0]       m_axi_awaddr,
    output wire [CLUSTERS*8-1:0]        m_axi_awlen,
    output wire [CLUSTERS*3-1:0]        m_axi_awsize,
    output wire [CLUSTERS*2-1:0]        m_axi_awburst,
    output wire [CLUSTERS-1:0]          m_axi_awvalid,
    input  wire [CLUSTERS-1:0]          m_axi_awready,
    output wire [CLUSTERS*DATA_W-1:0]   m_axi_wdata,
    output wire [CLUSTERS*DATA_W/8-1:0] m_axi_wstrb,
    output wire [CLUSTERS-1:0]          m_axi_wlast,
    output wire [CLUSTERS-1:0]          m_axi_wvalid,
    input  wire [CLUSTERS-1:0]          m_axi_wready,
    input  wire [CLUSTERS*AXI_ID_W-1:0] m_axi_bid,
    input  wire [CLUSTERS*2-1:0]        m_axi_bresp,
    input  wire [CLUSTERS-1:0]          m_axi_bvalid,
    output wire [CLUSTERS-1:0]          m_axi_bready
);

    `include "bisort_abi.svh"

    localparam PAIRS = PROBERS / 2;
    localparam SLOTS = PAIRS > CLUSTERS ? PAIRS : CLUSTERS;
    localparam PARAMS = 32 + 2 * SLOTS;
    // The index is loaded through the first port at its full width, or 16 samples per cycle, or half of it.
    localparam WIDEST = INDEX_DEPTH / 2 < 16 ? INDEX_DEPTH / 2 : 16;
    localparam INDEX_W = DATA_W / KEY_W > WIDEST ? WIDEST : DATA_W / KEY_W;
    localparam [31:0] BEAT_LOG2 = $clog2(DATA_W / 8);
    localparam [2:0] SIZE = BEAT_LOG2[2:0];
    localparam BEAT_W = ADDR_W - $clog2(DATA_W / 8);
    localparam LEN_W = $clog2(BURST);
    localparam PART_W = $clog2(INDEX_DEPTH);
    localparam BYTES_LOG2 = $clog2(KEY_W / 8);
    localparam COUNTERS = 8 * (CLUSTERS + PAIRS);
    localparam COUNTER_W = $clog2(COUNTERS);
    // Bits of what is counted in a cycle: up to W tuples.
    localparam STEP_W = $clog2(W) + 1;

    param_check #(.OK(KEY_W == 32 || KEY_W == 64), .MESSAGE("KEY_W must be 32 or 64")) key_check ();
    param_check #(
        .OK(INDEX_DEPTH >= 16 && INDEX_DEPTH <= 1048576 && INDEX_DEPTH == (1 << $clog2(INDEX_DEPTH))),
        .MESSAGE("INDEX_DEPTH must be a power of two, 16 to 1048576")
    ) depth_check ();
    param_check #(.OK(ADDR_W >= 16 && ADDR_W <= 64), .MESSAGE("ADDR_W must be 16 to 64")) addr_check ();
    param_check #(.OK(PENDING >= 2 && PENDING == (1 << $clog2(PENDING))), .MESSAGE("PENDING must be a power of two, 2 or more")) pending_check ();
    param_check #(.OK(AXI_ID_W >= 1 && AXI_ID_W <= 8), .MESSAGE("AXI_ID_W must be 1 to 8")) id_check ();
    param_check #(.OK(CLUSTERS >= 1 && CLUSTERS <= 16), .MESSAGE("CLUSTERS must be 1 to 16")) clusters_check ();
    param_check #(
        .OK(PROBERS >= 2 && PROBERS <= 32 && PROBERS % 2 == 0),
        .MESSAGE("PROBERS must be an even number, 2 to 32")
    ) probers_check ();

    // ---- Registers and commands.

    wire reg_write;
    wire [11:0] reg_write_addr, reg_read_addr;
    wire reg_read_pending, reg_read;
    wire [31:0] reg_write_data, reg_read_data;
    wire [PARAMS*32+7:0] command_tdata;
    wire command_tvalid, command_tready;
    wire [47:0] result_tdata;
    wire result_tvalid, result_tready;
    wire working;
    wire [COUNTERS*STEP_W-1:0] steps;
    wire [COUNTER_W-1:0] counter_asked;
    wire [31:0] counter;
    wire [7:0] sum_asked;
    wire sum_of_writer;
    wire [CLUSTERS*32-1:0] sums;
    reg [31:0] index_rows_reg;
    wire reset_asked, resetting, hold, core_rst, results_wait;
    wire [CLUSTERS-1:0] cluster_idle;

    // Registers and counters outlive a soft reset; everything else gets `core_rst`.
    bisort_reset soft_reset (
        .clk(clk),
        .rst(rst),
        .request(reset_asked),
        .idle(&cluster_idle),
        .hold(hold),
        .core_rst(core_rst),
        .resetting(resetting)
    );

    axi_lite_port #(
        .ADDR_W(12)
    ) lite_port (
        .clk(clk),
        .rst(rst),
        .s_axil_awaddr(s_axil_awaddr),
        .s_axil_awvalid(s_axil_awvalid),
        .s_axil_awready(s_axil_awready),
        .s_axil_wdata(s_axil_wdata),
        .s_axil_wvalid(s_axil_wvalid),
        .s_axil_wready(s_axil_wready),
        .s_axil_bresp(s_axil_bresp),
        .s_axil_bvalid(s_axil_bvalid),
        .s_axil_bready(s_axil_bready),
        .s_axil_araddr(s_axil_araddr),
        .s_axil_arvalid(s_axil_arvalid),
        .s_axil_arready(s_axil_arready),
        .s_axil_rdata(s_axil_rdata),
        .s_axil_rresp(s_axil_rresp),
        .s_axil_rvalid(s_axil_rvalid),
        .s_axil_rready(s_axil_rready),
        .write(reg_write),
        .write_addr(reg_write_addr),
        .write_data(reg_write_data),
        .read_addr(reg_read_addr),
        .read_pending(reg_read_pending),
        .read(reg_read),
        .read_data(reg_read_data)
    );

    bisort_counters #(
        .COUNTERS(COUNTERS),
        .STEP_W(STEP_W)
    ) counters (
        .clk(clk),
        .rst(rst),
        .steps(steps),
        .pause(reg_read_pending),
        .ask(reg_read),
        .asked(counter_asked),
        .total(counter)
    );

    bisort_registers #(
        .KEY_W(KEY_W),
        .ID_W(32),
        .W(W),
        .INDEX_LOG2($clog2(INDEX_DEPTH)),
        .CLUSTERS(CLUSTERS),
        .PAIRS(PAIRS),
        .BEAT_BYTES(DATA_W / 8),
        .BURST(BURST),
        .QUEUE(QUEUE),
        .BUILD_HASH(BUILD_HASH)
    ) registers (
        .clk(clk),
        .rst(rst),
        .write(reg_write),
        .write_addr(reg_write_addr),
        .write_data(reg_write_data),
        .read_addr(reg_read_addr),
        .read(reg_read),
        .read_data(reg_read_data),
        .irq(irq),
        .reset_asked(reset_asked),
        .resetting(resetting),
        .flush(core_rst),
        .m_command_tdata(command_tdata),
        .m_command_tvalid(command_tvalid),
        .m_command_tready(command_tready),
        .s_result_tdata(result_tdata),
        .s_result_tvalid(result_tvalid),
        .s_result_tready(result_tready),
        .results_wait(results_wait),
        .working(working),
        .index_rows(index_rows_reg),
        .counter_asked(counter_asked),
        .counter(counter),
        .sum_asked(sum_asked),
        .sum_of_writer(sum_of_writer),
        .sums(sums)
    );

    wire [PARAMS*32-1:0] job;
    wire [CLUSTERS-1:0] slot_cluster, cluster_start, cluster_busy, cluster_error;
    wire [PAIRS-1:0] slot_pair, pair_start;
    wire indexing, clear, drop, load, index_busy;
    wire [31:0] slot_a_first, slot_a_end, slot_b_first, slot_b_end, load_count;

    bisort_sequencer #(
        .KEY_W(KEY_W),
        .INDEX_DEPTH(INDEX_DEPTH),
        .ADDR_W(ADDR_W),
        .CLUSTERS(CLUSTERS),
        .PAIRS(PAIRS)
    ) sequencer (
        .clk(clk),
        .rst(core_rst),
        .s_command_tdata(command_tdata),
        .s_command_tvalid(command_tvalid),
        .s_command_tready(command_tready),
        .m_result_tdata(result_tdata),
        .m_result_tvalid(result_tvalid),
        .m_result_tready(result_tready),
        .results_wait(results_wait),
        .working(working),
        .job(job),
        .cluster_start(slot_cluster),
        .pair_start(slot_pair),
        .indexing(indexing),
        .a_first(slot_a_first),
        .a_end(slot_a_end),
        .b_first(slot_b_first),
        .b_end(slot_b_end),
        .clear(clear),
        .drop(drop),
        .load(load),
        .load_count(load_count),
        .busy(|cluster_busy || index_busy),
        .fault(|cluster_error)
    );

    wire [ADDR_W-1:0] words_addr = job[(BISORT_REG_A_WORDS-BISORT_REG_A_WORDS)*8 +: ADDR_W];
    wire [ADDR_W-1:0] index_addr = job[(BISORT_REG_INDEX-BISORT_REG_A_WORDS)*8 +: ADDR_W];
    wire [31:0] words_count = job[(BISORT_REG_A_COUNT-BISORT_REG_A_WORDS)*8 +: 32];
    wire [31:0] flags = job[(BISORT_REG_FLAGS-BISORT_REG_A_WORDS)*8 +: 32];
    wire [31:0] step_log2 = job[(BISORT_REG_STEP_LOG2-BISORT_REG_A_WORDS)*8 +: 32];

    wire [ADDR_W-1:0] a_words_at, a_ids_at, b_words_at, b_ids_at, out_words_at, out_ids_at, index_at;
    wire [ADDR_W-1:0] a_words_last, a_ids_last, b_words_last, b_ids_last;
    wire a_empty, b_empty;
    wire [31:0] out_first;

    // The last word of a run that is probed, the last sample of its index, and thus its last partition.
    wire [63:0] word_bytes = {32'd0, words_count - 32'd1} << BYTES_LOG2;
    wire [31:0] last_sample = load_count - 32'd1;
    wire [63:0] sample_bytes = {32'd0, last_sample} << BYTES_LOG2;
    wire [ADDR_W-1:0] words_last = words_addr + word_bytes[ADDR_W-1:0];
    wire [ADDR_W-1:0] index_last = index_addr + sample_bytes[ADDR_W-1:0];

    bisort_slicer #(
        .KEY_W(KEY_W),
        .ADDR_W(ADDR_W),
        .CLUSTERS(CLUSTERS),
        .PAIRS(PAIRS)
    ) slicer (
        .clk(clk),
        .rst(core_rst),
        .a_words(words_addr),
        .a_ids(job[(BISORT_REG_A_IDS-BISORT_REG_A_WORDS)*8 +: ADDR_W]),
        .b_words(job[(BISORT_REG_B_WORDS-BISORT_REG_A_WORDS)*8 +: ADDR_W]),
        .b_ids(job[(BISORT_REG_B_IDS-BISORT_REG_A_WORDS)*8 +: ADDR_W]),
        .out_words(job[(BISORT_REG_OUT_WORDS-BISORT_REG_A_WORDS)*8 +: ADDR_W]),
        .out_ids(job[(BISORT_REG_OUT_IDS-BISORT_REG_A_WORDS)*8 +: ADDR_W]),
        .index(index_addr),
        .step_log2(step_log2[4:0]),
        .s_cluster_start(slot_cluster),
        .s_pair_start(slot_pair),
        .s_a_first(slot_a_first),
        .s_a_end(slot_a_end),
        .s_b_first(slot_b_first),
        .s_b_end(slot_b_end),
        .cluster_start(cluster_start),
        .pair_start(pair_start),
        .a_words_at(a_words_at),
        .a_words_last(a_words_last),
        .a_ids_at(a_ids_at),
        .a_ids_last(a_ids_last),
        .a_empty(a_empty),
        .b_words_at(b_words_at),
        .b_words_last(b_words_last),
        .b_ids_at(b_ids_at),
        .b_ids_last(b_ids_last),
        .b_empty(b_empty),
        .out_words_at(out_words_at),
        .out_ids_at(out_ids_at),
        .index_at(index_at),
        .out_first(out_first)
    );

    // ---- The on-chip index: read once, through the first cluster's port, for all pairs at the same time.

    wire [BEAT_W-1:0] index_araddr;
    wire [LEN_W-1:0] index_arlen;
    wire [DATA_W/32-1:0] index_sum_keep;
    wire index_sum_first;
    wire index_arvalid, index_arready;
    wire [INDEX_W*KEY_W-1:0] index_tdata;
    wire [INDEX_W-1:0] index_tkeep;
    wire index_tlast, index_tvalid;
    wire [CLUSTERS-1:0] index_tready, outside_arready, outside_rvalid;
    wire index_all = &index_tready;
    reg [31:0] index_kept;
    integer j;

    axi_reader #(
        .ELEM_W(KEY_W),
        .W(INDEX_W),
        .DATA_W(DATA_W),
        .ADDR_W(ADDR_W),
        .BURST(BURST),
        .FIFO_BEATS(FIFO_BEATS)
    ) index_reader (
        .clk(clk),
        .rst(core_rst),
        .cmd_addr(index_addr),
        .cmd_last(index_last),
        .cmd_empty(1'b0),
        .cmd_valid(load),
        .cmd_ready(),
        .m_axis_tdata(index_tdata),
        .m_axis_tkeep(index_tkeep),
        .m_axis_tlast(index_tlast),
        .m_axis_tvalid(index_tvalid),
        .m_axis_tready(index_all),
        .m_axi_araddr(index_araddr),
        .m_axi_arlen(index_arlen),
        .m_axi_arvalid(index_arvalid),
        .m_axi_arready(index_arready),
        .m_axi_rdata(m_axi_rdata[DATA_W-1:0]),
        .m_axi_rlast(m_axi_rlast[0]),
        .m_axi_rvalid(outside_rvalid[0]),
        .sum_keep(index_sum_keep),
        .sum_first(index_sum_first),
        .busy(index_busy)
    );

    assign index_arready = outside_arready[0];

    always @* begin
        index_kept = 32'd0;
        for (j = 0; j < INDEX_W; j = j + 1) index_kept = index_kept + {31'd0, index_tkeep[j]};
    end

    always @(posedge clk) begin
        if (index_tvalid && index_all) index_rows_reg <= index_rows_reg + index_kept;
        if (rst) index_rows_reg <= 32'd0;
    end

    // ---- Clusters. Pair p is behind cluster p mod CLUSTERS.

    genvar k, p;
    generate
        for (k = 0; k < CLUSTERS; k = k + 1) begin : cluster
            localparam HERE = PAIRS / CLUSTERS + (k < PAIRS % CLUSTERS ? 1 : 0);
            localparam PORTS = HERE > 0 ? HERE : 1;
            wire [PORTS-1:0] start;
            wire [PORTS*8*STEP_W-1:0] pair_steps;
            wire [BEAT_W-1:0] araddr, awaddr;
            wire [LEN_W-1:0] arlen, awlen;
            wire [DATA_W/32-1:0] wstrb;

            for (p = 0; p < PORTS; p = p + 1) begin : pair
                if (HERE > 0) begin : there
                    assign start[p] = pair_start[p*CLUSTERS+k];
                    assign steps[(CLUSTERS+p*CLUSTERS+k)*8*STEP_W +: 8*STEP_W] = pair_steps[p*8*STEP_W +: 8*STEP_W];
                end else begin : none
                    assign start[p] = 1'b0;
                end
            end

            // What the clusters need of AXI4 is less than its ports have: addresses of beats, strobes of words.
            assign m_axi_araddr[k*64 +: 64] = {{(64-BEAT_W){1'b0}}, araddr} << BEAT_LOG2;
            assign m_axi_arlen[k*8 +: 8] = {{(8-LEN_W){1'b0}}, arlen};
            assign m_axi_awaddr[k*64 +: 64] = {{(64-BEAT_W){1'b0}}, awaddr} << BEAT_LOG2;
            assign m_axi_awlen[k*8 +: 8] = {{(8-LEN_W){1'b0}}, awlen};
            for (p = 0; p < DATA_W / 32; p = p + 1) begin : strobe
                assign m_axi_wstrb[k*(DATA_W/8)+p*4 +: 4] = {4{wstrb[p]}};
            end
            assign m_axi_arsize[k*3 +: 3] = SIZE;
            assign m_axi_arburst[k*2 +: 2] = 2'b01;
            assign m_axi_awsize[k*3 +: 3] = SIZE;
            assign m_axi_awburst[k*2 +: 2] = 2'b01;

            bisort_cluster #(
                .KEY_W(KEY_W),
                .W(W),
                .PAIRS(HERE),
                .INDEX_W(INDEX_W),
                .INDEX_DEPTH(INDEX_DEPTH),
                .DATA_W(DATA_W),
                .ADDR_W(ADDR_W),
                .BURST(BURST),
                .FIFO_BEATS(FIFO_BEATS),
                .PENDING(PENDING),
                .AXI_ID_W(AXI_ID_W)
            ) units (
                .clk(clk),
                .rst(core_rst),
                .hold(hold),
                .idle(cluster_idle[k]),
                .start(cluster_start[k]),
                .indexing(indexing),
                .pair_start(start),
                .a_words_at(a_words_at),
                .a_words_last(a_words_last),
                .a_ids_at(a_ids_at),
                .a_ids_last(a_ids_last),
                .a_empty(a_empty),
                .b_words_at(b_words_at),
                .b_words_last(b_words_last),
                .b_ids_at(b_ids_at),
                .b_ids_last(b_ids_last),
                .b_empty(b_empty),
                .out_words_at(out_words_at),
                .out_ids_at(out_ids_at),
                .index_at(index_at),
                .out_first(out_first),
                .with_index(indexing || flags[BISORT_FLAG_INDEX[4:0]]),
                .words_addr(words_addr),
                .words_last(words_last),
                .last_partition(last_sample[PART_W-1:0]),
                .step_log2(step_log2[4:0]),
                .band(flags[BISORT_FLAG_BAND[4:0]]),
                .below(job[(BISORT_REG_BELOW-BISORT_REG_A_WORDS)*8 +: KEY_W]),
                .above(job[(BISORT_REG_ABOVE-BISORT_REG_A_WORDS)*8 +: KEY_W]),
                .least(job[(BISORT_REG_LEAST-BISORT_REG_A_WORDS)*8 +: KEY_W]),
                .most(job[(BISORT_REG_MOST-BISORT_REG_A_WORDS)*8 +: KEY_W]),
                .drop(drop),
                .s_index_tdata(index_tdata),
                .s_index_tkeep(index_tkeep),
                .s_index_tlast(index_tlast),
                .s_index_tvalid(index_tvalid && index_all),
                .s_index_tready(index_tready[k]),
                .s_axi_araddr(index_araddr),
                .s_axi_arlen(index_arlen),
                .s_axi_arvalid(k == 0 ? index_arvalid : 1'b0),
                .s_axi_arready(outside_arready[k]),
                .s_axi_rvalid(outside_rvalid[k]),
                .s_sum_keep(index_sum_keep),
                .s_sum_first(index_sum_first),
                .m_axi_arid(m_axi_arid[k*AXI_ID_W +: AXI_ID_W]),
                .m_axi_araddr(araddr),
                .m_axi_arlen(arlen),
                .m_axi_arvalid(m_axi_arvalid[k]),
                .m_axi_arready(m_axi_arready[k]),
                .m_axi_rid(m_axi_rid[k*AXI_ID_W +: AXI_ID_W]),
                .m_axi_rdata(m_axi_rdata[k*DATA_W +: DATA_W]),
                .m_axi_rresp(m_axi_rresp[k*2 +: 2]),
                .m_axi_rlast(m_axi_rlast[k]),
                .m_axi_rvalid(m_axi_rvalid[k]),
                .m_axi_rready(m_axi_rready[k]),
                .m_axi_awid(m_axi_awid[k*AXI_ID_W +: AXI_ID_W]),
                .m_axi_awaddr(awaddr),
                .m_axi_awlen(awlen),
                .m_axi_awvalid(m_axi_awvalid[k]),
                .m_axi_awready(m_axi_awready[k]),
                .m_axi_wdata(m_axi_wdata[k*DATA_W +: DATA_W]),
                .m_axi_wstrb(wstrb),
                .m_axi_wlast(m_axi_wlast[k]),
                .m_axi_wvalid(m_axi_wvalid[k]),
                .m_axi_wready(m_axi_wready[k]),
                .m_axi_bid(m_axi_bid[k*AXI_ID_W +: AXI_ID_W]),
                .m_axi_bresp(m_axi_bresp[k*2 +: 2]),
                .m_axi_bvalid(m_axi_bvalid[k]),
                .m_axi_bready(m_axi_bready[k]),
                .busy(cluster_busy[k]),
                .clear(clear),
                .error(cluster_error[k]),
                .sum_asked(sum_asked[AXI_ID_W-1:0]),
                .sum_of_writer(sum_of_writer),
                .sum(sums[k*32 +: 32]),
                .steps(steps[k*8*STEP_W +: 8*STEP_W]),
                .pair_steps(pair_steps)
            );
        end
    endgenerate

endmodule

/* verilator lint_on PINCONNECTEMPTY */
/* verilator lint_on UNUSEDSIGNAL */

`default_nettype wire
