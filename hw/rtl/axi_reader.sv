// Burst DMA from AXI4 memory to a stream: elements from one element-aligned address to another, one beat of W per cycle.
//
// Transfers queue up: the request half runs ahead of the data half, so short transfers follow each other without a gap. Bursts end
// at multiples of BURST beats, which also keeps them inside 4 KiB. A burst is asked for only when the beats it brings have room,
// so a shared port is never blocked by one reader. An empty transfer gives one empty beat. Nothing is counted: a transfer ends with
// the last beat of the burst that reaches its last element's address, so what a transfer's length costs is one comparison.
// `sum_keep` and `sum_first` go with each beat that comes, for the checksum at the port (axi_sum); they are right for one transfer at a time.

`default_nettype none

// With one lane nothing is carried; the FIFO of beats always has room; the lowest bits of an address are those of an element.
/* verilator lint_off PINCONNECTEMPTY */
/* verilator lint_off UNUSEDSIGNAL */

module axi_reader #(
    // Bits of an element: 32 or 64.
    parameter ELEM_W = 32,
    // Elements of a stream beat: 1, 2, 4, 8 or 16.
    parameter W = 4,
    // Bits of the memory port: a power of two, at least W * ELEM_W, at most 1024.
    parameter DATA_W = 128 * W,
    // Bits of a byte address: 16 to 64.
    parameter ADDR_W = 40,
    // Beats of the longest burst: a power of two, 2 or more, and BURST * DATA_W / 8 at most 4096.
    parameter BURST = 16,
    // Beats that may be under way or waiting: a power of two, at least 2 * BURST. Hides the memory's latency.
    parameter FIFO_BEATS = 64,
    // Transfers that may be under way: 1, or a power of two.
    parameter QUEUE = 1,
    // Bursts that may be under way if there may be several transfers: a power of two, 2 or more.
    parameter BURSTS = FIFO_BEATS,
    // Bits of a beat's address.
    localparam BEAT_W = ADDR_W - $clog2(DATA_W / 8)
) (
    input  wire                     clk,
    input  wire                     rst,

    // Addresses of the first and the last element.
    input  wire [ADDR_W-1:0]        cmd_addr,
    input  wire [ADDR_W-1:0]        cmd_last,
    input  wire                     cmd_empty,
    input  wire                     cmd_valid,
    output wire                     cmd_ready,

    output wire [W*ELEM_W-1:0]      m_axis_tdata,
    output wire [W-1:0]             m_axis_tkeep,
    output wire                     m_axis_tlast,
    output wire                     m_axis_tvalid,
    input  wire                     m_axis_tready,

    // Address in beats, and beats less one.
    output wire [BEAT_W-1:0]        m_axi_araddr,
    output wire [$clog2(BURST)-1:0] m_axi_arlen,
    output wire                     m_axi_arvalid,
    input  wire                     m_axi_arready,
    input  wire [DATA_W-1:0]        m_axi_rdata,
    input  wire                     m_axi_rlast,
    input  wire                     m_axi_rvalid,

    // Of the beat that comes: the words of 32 bits that belong to the transfer, and whether it is the transfer's first.
    output wire [DATA_W/32-1:0]     sum_keep,
    output wire                     sum_first,

    output wire                     busy
);

    localparam ELEM_LOG2 = $clog2(ELEM_W / 8);
    localparam BEAT_LOG2 = $clog2(DATA_W / 8);
    localparam CHUNK_W = W * ELEM_W;
    localparam CHUNKS = DATA_W / CHUNK_W;
    localparam ELEMS = DATA_W / ELEM_W;
    localparam SEL_W = CHUNKS > 1 ? $clog2(CHUNKS) : 1;
    localparam FINE_W = W > 1 ? $clog2(W) : 1;
    // An element's place in a beat; a beat of one element has one place.
    localparam PLACE_W = ELEMS > 1 ? $clog2(ELEMS) : 1;
    localparam BURST_LOG2 = $clog2(BURST);
    localparam FIFO_LOG2 = $clog2(FIFO_BEATS);
    localparam HIGH_W = BEAT_W - BURST_LOG2;
    localparam [31:0] MOST = FIFO_BEATS - BURST;
    localparam [FIFO_LOG2:0] MOST_RESERVED = MOST[FIFO_LOG2:0];
    localparam [31:0] LAST_CHUNK = CHUNKS - 1;
    localparam [SEL_W-1:0] LAST_SEL = LAST_CHUNK[SEL_W-1:0];

    param_check #(.OK(ELEM_W == 32 || ELEM_W == 64), .MESSAGE("ELEM_W must be 32 or 64")) elem_check ();
    param_check #(.OK(W == 1 || W == 2 || W == 4 || W == 8 || W == 16), .MESSAGE("W must be 1, 2, 4, 8 or 16")) lanes_check ();
    param_check #(.OK(DATA_W == (8 << BEAT_LOG2) && DATA_W >= CHUNK_W && DATA_W <= 1024), .MESSAGE("DATA_W must be a power of two from W * ELEM_W to 1024")) data_check ();
    param_check #(.OK(ADDR_W >= 16 && ADDR_W <= 64), .MESSAGE("ADDR_W must be 16 to 64")) addr_check ();
    param_check #(.OK(BURST == (1 << BURST_LOG2) && BURST >= 2 && BURST * DATA_W / 8 <= 4096), .MESSAGE("BURST must be a power of two of at least 2 and a burst at most 4096 bytes")) burst_check ();
    param_check #(.OK(FIFO_BEATS == (1 << FIFO_LOG2) && FIFO_BEATS >= 2 * BURST), .MESSAGE("FIFO_BEATS must be a power of two of at least 2 * BURST")) fifo_check ();

    // ---- Requests: a transfer becomes bursts.

    reg                  req_active_reg;
    reg [HIGH_W-1:0]     req_high_reg;   // which burst is next, and its first beat
    reg [BURST_LOG2-1:0] req_low_reg;
    reg [HIGH_W-1:0]     end_high_reg;   // the same of the transfer's last beat
    reg [BURST_LOG2-1:0] end_low_reg;
    reg [BEAT_W-1:0]     ar_addr_reg;
    reg [BURST_LOG2-1:0] ar_len_reg;
    reg                  ar_valid_reg;
    reg [FIFO_LOG2:0]    reserved_reg;   // beats asked for and not yet taken out of the FIFO

    wire pend_ready, mark_ready;
    wire beat_pop;

    wire final_burst = req_high_reg == end_high_reg;
    wire [BURST_LOG2-1:0] more = (final_burst ? end_low_reg : {BURST_LOG2{1'b1}}) - req_low_reg;
    // For the longest burst, whatever its length will be.
    wire has_room = reserved_reg <= MOST_RESERVED;
    wire issue = req_active_reg && has_room && mark_ready && (!ar_valid_reg || m_axi_arready);
    wire accept = cmd_valid && cmd_ready;

    // More beats and one, less the one that goes: the lowest bit is there for its carry. Nothing comes and one goes: all bits set.
    wire [FIFO_LOG2:0] change = issue ? {{(FIFO_LOG2+1-BURST_LOG2){1'b0}}, more} : {(FIFO_LOG2+1){beat_pop}};
    wire [FIFO_LOG2+1:0] reserved_next = {reserved_reg, 1'b1} + {change, issue && !beat_pop};

    assign cmd_ready = pend_ready && (!req_active_reg || (issue && final_burst));
    assign m_axi_araddr = ar_addr_reg;
    assign m_axi_arlen = ar_len_reg;
    assign m_axi_arvalid = ar_valid_reg;

    always @(posedge clk) begin
        if (m_axi_arready) ar_valid_reg <= 1'b0;
        if (issue) begin
            ar_addr_reg <= {req_high_reg, req_low_reg};
            ar_len_reg <= more;
            ar_valid_reg <= 1'b1;
            req_high_reg <= req_high_reg + 1'b1;
            req_low_reg <= {BURST_LOG2{1'b0}};
            if (final_burst) req_active_reg <= 1'b0;
        end
        if (accept) begin
            req_active_reg <= !cmd_empty;
            {req_high_reg, req_low_reg} <= cmd_addr[ADDR_W-1:BEAT_LOG2];
            {end_high_reg, end_low_reg} <= cmd_last[ADDR_W-1:BEAT_LOG2];
        end
        reserved_reg <= reserved_next[FIFO_LOG2+1:1];
        if (rst) begin
            req_active_reg <= 1'b0;
            ar_valid_reg <= 1'b0;
            reserved_reg <= 0;
        end
    end

    // ---- Beats as they come. Of each burst under way it is known whether it is its transfer's last.

    reg first_reg;
    reg [PLACE_W-1:0] first_place_reg, last_place_reg;
    reg empty_reg;
    wire final_come;
    wire burst_come = m_axi_rvalid && m_axi_rlast;
    wire last_come = m_axi_rlast && final_come;
    wire [PLACE_W-1:0] cmd_first_place, cmd_last_place;
    wire [DATA_W-1:0] beat;
    wire beat_last, beat_valid;

    generate
        if (QUEUE > 1) begin : marks
            stream_fifo #(
                .WIDTH(1),
                .DEPTH(BURSTS)
            ) mark_fifo (
                .clk(clk),
                .rst(rst),
                .s_axis_tdata(final_burst),
                .s_axis_tvalid(issue),
                .s_axis_tready(mark_ready),
                .m_axis_tdata(final_come),
                .m_axis_tvalid(),
                .m_axis_tready(burst_come),
                .count()
            );
        end else begin : marks
            // Nothing more will be asked for, and one burst is under way. There is room for all but three of them in full.
            localparam OPEN_W = FIFO_LOG2 - BURST_LOG2 + 2;
            reg [OPEN_W-1:0] open_reg;

            assign mark_ready = 1'b1;
            assign final_come = !req_active_reg && open_reg == 1;
            always @(posedge clk) begin
                // One more or, as all bits set, one less.
                if (issue != burst_come) open_reg <= open_reg + {{(OPEN_W-1){burst_come}}, 1'b1};
                if (rst) open_reg <= 0;
            end
        end
    endgenerate

    stream_fifo #(
        .WIDTH(DATA_W + 1),
        .DEPTH(FIFO_BEATS)
    ) beat_fifo (
        .clk(clk),
        .rst(rst),
        .s_axis_tdata({last_come, m_axi_rdata}),
        .s_axis_tvalid(m_axi_rvalid),
        .s_axis_tready(),
        .m_axis_tdata({beat_last, beat}),
        .m_axis_tvalid(beat_valid),
        .m_axis_tready(beat_pop),
        .count()
    );

    always @(posedge clk) begin
        if (m_axi_rvalid) first_reg <= last_come;
        if (accept) begin
            first_place_reg <= cmd_first_place;
            last_place_reg <= cmd_last_place;
            empty_reg <= cmd_empty;
        end
        if (rst) first_reg <= 1'b1;
    end

    assign sum_first = first_reg;

    wire [ELEMS-1:0] from_first = {ELEMS{1'b1}} << first_place_reg;
    wire [ELEMS-1:0] to_last = ~({ELEMS{1'b1}} << last_place_reg << 1);

    genvar k;
    generate
        if (ELEMS > 1) begin : places
            assign cmd_first_place = cmd_addr[ELEM_LOG2 +: PLACE_W];
            assign cmd_last_place = cmd_last[ELEM_LOG2 +: PLACE_W];
        end else begin : places
            assign cmd_first_place = 1'b0;
            assign cmd_last_place = 1'b0;
        end
        for (k = 0; k < ELEMS; k = k + 1) begin : kept
            assign sum_keep[k*(ELEM_W/32) +: ELEM_W/32] =
                {(ELEM_W/32){(!first_reg || from_first[k]) && (!last_come || to_last[k])}};
        end
    endgenerate

    // ---- Data: beats become chunks of W elements, moved so that the first element is in lane 0.

    wire empty;
    wire [PLACE_W-1:0] first_place, last_place;
    wire pend_valid, pend_pop;
    wire waits;                   // a transfer is under way

    generate
        if (QUEUE > 1) begin : queue
            wire [$clog2(QUEUE):0] pending;

            stream_fifo #(
                .WIDTH(2 * PLACE_W + 1),
                .DEPTH(QUEUE)
            ) pend_fifo (
                .clk(clk),
                .rst(rst),
                .s_axis_tdata({cmd_empty, cmd_first_place, cmd_last_place}),
                .s_axis_tvalid(accept),
                .s_axis_tready(pend_ready),
                .m_axis_tdata({empty, first_place, last_place}),
                .m_axis_tvalid(pend_valid),
                .m_axis_tready(pend_pop),
                .count(pending)
            );
            assign waits = pending != 0;
        end else begin : queue
            reg pend_reg;

            assign pend_ready = !pend_reg;
            assign {empty, first_place, last_place} = {empty_reg, first_place_reg, last_place_reg};
            assign pend_valid = pend_reg;
            assign waits = pend_reg;
            always @(posedge clk) begin
                if (pend_pop) pend_reg <= 1'b0;
                if (accept) pend_reg <= 1'b1;
                if (rst) pend_reg <= 1'b0;
            end
        end
    endgenerate

    reg               fresh_reg;        // the next chunk is a transfer's first
    reg [SEL_W-1:0]   sel_reg;          // chunk of the beat, where it is not
    reg [CHUNK_W-1:0] out_reg;
    reg [W-1:0]       keep_reg;
    reg               last_reg;
    reg               valid_reg;

    wire [SEL_W-1:0] first_sel, last_sel;
    wire [CHUNK_W-1:0] chunk;
    wire [CHUNK_W-1:0] moved;
    wire [W-1:0] end_keep;      // lanes of the stream's last beat
    wire needs;                 // a chunk is needed
    wire fills;                 // it is kept for the next beat, and gives none itself
    wire ends;                  // the stream's last beat
    wire [SEL_W-1:0] sel = fresh_reg ? first_sel : sel_reg;
    wire final_chunk = beat_last && sel == last_sel;
    wire move = pend_valid && (!valid_reg || m_axis_tready) && (!needs || beat_valid);
    wire give = move && !fills;
    wire take = move && needs;

    assign pend_pop = give && ends;
    assign beat_pop = take && (final_chunk || sel == LAST_SEL);

    generate
        if (CHUNKS > 1) begin : narrow
            assign chunk = beat[sel*CHUNK_W +: CHUNK_W];
            assign first_sel = first_place[PLACE_W-1 -: SEL_W];
            assign last_sel = last_place[PLACE_W-1 -: SEL_W];
        end else begin : narrow
            assign chunk = beat;
            assign first_sel = 1'b0;
            assign last_sel = 1'b0;
        end
        if (W > 1) begin : shift
            reg carry_valid_reg;
            reg spill_reg;                 // the last chunk has been taken; its end is carried
            reg [CHUNK_W-1:0] carry_reg;   // the chunk before, where the first lane is not 0
            wire [FINE_W-1:0] fine = first_place[FINE_W-1:0];
            wire [FINE_W-1:0] last_lane = last_place[FINE_W-1:0];
            wire [FINE_W-1:0] end_lane = last_lane - fine;
            wire straight = fine == 0;
            wire [2*CHUNK_W-1:0] both = {chunk, carry_reg};

            assign needs = !empty && !spill_reg;
            assign fills = needs && !straight && !carry_valid_reg;
            assign ends = empty || spill_reg || (final_chunk && (straight || (carry_valid_reg && last_lane < fine)));
            assign moved = straight ? chunk : both[fine*ELEM_W +: CHUNK_W];
            assign end_keep = ~({W{1'b1}} << end_lane << 1);
            always @(posedge clk) begin
                if (take) begin
                    carry_reg <= chunk;
                    carry_valid_reg <= 1'b1;
                    spill_reg <= final_chunk;
                end
                if (pend_pop || rst) begin
                    carry_valid_reg <= 1'b0;
                    spill_reg <= 1'b0;
                end
            end
        end else begin : shift
            assign needs = !empty;
            assign fills = 1'b0;
            assign ends = empty || final_chunk;
            assign moved = chunk;
            assign end_keep = 1'b1;
        end
    endgenerate

    always @(posedge clk) begin
        if (m_axis_tready) valid_reg <= 1'b0;
        if (give) begin
            out_reg <= moved;
            keep_reg <= empty ? {W{1'b0}} : ends ? end_keep : {W{1'b1}};
            last_reg <= ends;
            valid_reg <= 1'b1;
        end
        if (take) begin
            fresh_reg <= 1'b0;
            sel_reg <= CHUNKS == 1 ? {SEL_W{1'b0}} : sel + 1'b1;
        end
        if (pend_pop) fresh_reg <= 1'b1;
        if (rst) begin
            fresh_reg <= 1'b1;
            valid_reg <= 1'b0;
        end
    end

    assign m_axis_tdata = out_reg;
    assign m_axis_tkeep = keep_reg;
    assign m_axis_tlast = last_reg;
    assign m_axis_tvalid = valid_reg;
    assign busy = req_active_reg || waits || valid_reg;

endmodule

/* verilator lint_on PINCONNECTEMPTY */
/* verilator lint_on UNUSEDSIGNAL */

`default_nettype wire
