// Burst DMA from AXI4 memory to a stream: any number of elements from any element-aligned address, one beat of W per cycle.
//
// Transfers queue up: the request half runs ahead of the data half, so short transfers follow each other without a gap. Bursts end
// at multiples of BURST beats, which also keeps them inside 4 KiB. A burst is asked for only when the beats it brings have room,
// so `rready` is always high and a shared port is never blocked by one reader. An empty transfer gives one empty beat.
// The CRC-32 of the bytes of each transfer, in order, is there when its last beat has left. An error response does not stop a
// transfer; it raises `error` until the next `clear`.

`default_nettype none

// Of a response only the bit that says error counts; with one lane nothing is carried; the FIFO always has room.
/* verilator lint_off PINCONNECTEMPTY */
/* verilator lint_off UNUSEDSIGNAL */

module axi_reader #(
    // Bits of an element: 32 or 64.
    parameter ELEM_W = 32,
    // Elements of a stream beat: 1, 2, 4, 8 or 16.
    parameter W = 4,
    // Bits of the memory port: a power of two, at least W * ELEM_W, at most 1024.
    parameter DATA_W = 128 * W,
    // Beats of the longest burst: a power of two, 2 or more, and BURST * DATA_W / 8 at most 4096.
    parameter BURST = 16,
    // Beats that may be under way or waiting: a power of two, at least 2 * BURST. Hides the memory's latency.
    parameter FIFO_BEATS = 64,
    // Transfers that may be under way: a power of two, 2 or more.
    parameter QUEUE = 2
) (
    input  wire                   clk,
    input  wire                   rst,

    input  wire [63:0]            cmd_addr,
    // Elements; at most 2**31.
    input  wire [31:0]            cmd_count,
    input  wire                   cmd_valid,
    output wire                   cmd_ready,

    output wire [W*ELEM_W-1:0]    m_axis_tdata,
    output wire [W-1:0]           m_axis_tkeep,
    output wire                   m_axis_tlast,
    output wire                   m_axis_tvalid,
    input  wire                   m_axis_tready,

    output wire [63:0]            m_axi_araddr,
    output wire [7:0]             m_axi_arlen,
    output wire                   m_axi_arvalid,
    input  wire                   m_axi_arready,
    input  wire [DATA_W-1:0]      m_axi_rdata,
    input  wire [1:0]             m_axi_rresp,
    input  wire                   m_axi_rvalid,

    output wire                   busy,
    input  wire                   clear,
    output wire                   error,
    output wire [31:0]            crc
);

    localparam ELEM_LOG2 = $clog2(ELEM_W / 8);
    localparam BEAT_LOG2 = $clog2(DATA_W / 8);
    localparam CHUNK_W = W * ELEM_W;
    localparam CHUNKS = DATA_W / CHUNK_W;
    localparam SEL_W = CHUNKS > 1 ? $clog2(CHUNKS) : 1;
    localparam FINE_W = W > 1 ? $clog2(W) : 1;
    localparam BURST_LOG2 = $clog2(BURST);
    localparam FIFO_LOG2 = $clog2(FIFO_BEATS);
    localparam BEATS_W = 32 + ELEM_LOG2 - BEAT_LOG2 + 1;
    localparam [31:0] MOST = BURST;
    localparam [BURST_LOG2:0] FULL_BURST = MOST[BURST_LOG2:0];
    localparam [31:0] BEATS = FIFO_BEATS;
    localparam [FIFO_LOG2+1:0] ROOM = BEATS[FIFO_LOG2+1:0];
    localparam [31:0] LAST_CHUNK = CHUNKS - 1;
    localparam [SEL_W-1:0] LAST_SEL = LAST_CHUNK[SEL_W-1:0];

    param_check #(.OK(ELEM_W == 32 || ELEM_W == 64), .MESSAGE("ELEM_W must be 32 or 64")) elem_check ();
    param_check #(.OK(W == 1 || W == 2 || W == 4 || W == 8 || W == 16), .MESSAGE("W must be 1, 2, 4, 8 or 16")) lanes_check ();
    param_check #(.OK(DATA_W == (8 << BEAT_LOG2) && DATA_W >= CHUNK_W && DATA_W <= 1024), .MESSAGE("DATA_W must be a power of two from W * ELEM_W to 1024")) data_check ();
    param_check #(.OK(BURST == (1 << BURST_LOG2) && BURST >= 2 && BURST * DATA_W / 8 <= 4096), .MESSAGE("BURST must be a power of two of at least 2 and a burst at most 4096 bytes")) burst_check ();
    param_check #(.OK(FIFO_BEATS == (1 << FIFO_LOG2) && FIFO_BEATS >= 2 * BURST), .MESSAGE("FIFO_BEATS must be a power of two of at least 2 * BURST")) fifo_check ();

    // ---- Requests: a transfer becomes bursts.

    reg                  req_active_reg;
    reg [63-BEAT_LOG2:0] req_beat_reg;   // address of the next beat, in beats
    reg [BEATS_W-1:0]    req_left_reg;   // beats to ask for
    reg [63:0]           ar_addr_reg;
    reg [7:0]            ar_len_reg;
    reg                  ar_valid_reg;
    reg [FIFO_LOG2:0]    reserved_reg;   // beats asked for and not yet taken out of the FIFO

    wire pend_in_ready;
    wire beat_pop;

    wire [BURST_LOG2:0] to_edge = FULL_BURST - {1'b0, req_beat_reg[BURST_LOG2-1:0]};
    wire short_burst = req_left_reg < {{(BEATS_W-BURST_LOG2-1){1'b0}}, to_edge};
    wire [BURST_LOG2:0] burst = short_burst ? req_left_reg[BURST_LOG2:0] : to_edge;
    wire final_burst = req_left_reg <= {{(BEATS_W-BURST_LOG2-1){1'b0}}, to_edge};
    wire has_room = {1'b0, reserved_reg} + {{(FIFO_LOG2+1-BURST_LOG2){1'b0}}, burst} <= ROOM;
    wire issue = req_active_reg && has_room && (!ar_valid_reg || m_axi_arready);

    wire [BEAT_LOG2-1:0] cmd_byte = cmd_addr[BEAT_LOG2-1:0];
    wire [32+ELEM_LOG2:0] cmd_bytes = {1'b0, cmd_count, {ELEM_LOG2{1'b0}}} + {{(33+ELEM_LOG2-BEAT_LOG2){1'b0}}, cmd_byte};
    wire [BEATS_W-1:0] cmd_beats = cmd_bytes[32+ELEM_LOG2:BEAT_LOG2] + {{(BEATS_W-1){1'b0}}, |cmd_bytes[BEAT_LOG2-1:0]};
    wire accept = cmd_valid && cmd_ready;

    assign cmd_ready = pend_in_ready && (!req_active_reg || (issue && final_burst));
    assign m_axi_araddr = ar_addr_reg;
    assign m_axi_arlen = ar_len_reg;
    assign m_axi_arvalid = ar_valid_reg;

    always @(posedge clk) begin
        if (m_axi_arready) ar_valid_reg <= 1'b0;
        if (issue) begin
            ar_addr_reg <= {req_beat_reg, {BEAT_LOG2{1'b0}}};
            ar_len_reg <= {{(7-BURST_LOG2){1'b0}}, burst} - 8'd1;
            ar_valid_reg <= 1'b1;
            req_beat_reg <= req_beat_reg + {{(63-BEAT_LOG2-BURST_LOG2){1'b0}}, burst};
            req_left_reg <= req_left_reg - {{(BEATS_W-BURST_LOG2-1){1'b0}}, burst};
            if (final_burst) req_active_reg <= 1'b0;
        end
        if (accept) begin
            req_active_reg <= cmd_count != 0;
            req_beat_reg <= cmd_addr[63:BEAT_LOG2];
            req_left_reg <= cmd_beats;
        end
        reserved_reg <= reserved_reg + (issue ? {{(FIFO_LOG2-BURST_LOG2){1'b0}}, burst} : {(FIFO_LOG2+1){1'b0}})
            - {{FIFO_LOG2{1'b0}}, beat_pop};
        if (rst) begin
            req_active_reg <= 1'b0;
            ar_valid_reg <= 1'b0;
            reserved_reg <= 0;
        end
    end

    // ---- Beats as they come.

    wire [DATA_W-1:0] beat;
    wire beat_valid;

    stream_fifo #(
        .WIDTH(DATA_W),
        .DEPTH(FIFO_BEATS)
    ) beat_fifo (
        .clk(clk),
        .rst(rst),
        .s_axis_tdata(m_axi_rdata),
        .s_axis_tvalid(m_axi_rvalid),
        .s_axis_tready(),
        .m_axis_tdata(beat),
        .m_axis_tvalid(beat_valid),
        .m_axis_tready(beat_pop),
        .count()
    );

    // ---- Data: beats become chunks of W elements, moved so that the first element is in lane 0.

    wire [31:0] pend_count;
    wire [BEAT_LOG2-ELEM_LOG2-1:0] pend_first;
    wire pend_valid;
    wire [$clog2(QUEUE):0] pending;
    wire pend_pop;

    stream_fifo #(
        .WIDTH(32 + BEAT_LOG2 - ELEM_LOG2),
        .DEPTH(QUEUE)
    ) pend_fifo (
        .clk(clk),
        .rst(rst),
        .s_axis_tdata({cmd_addr[BEAT_LOG2-1:ELEM_LOG2], cmd_count}),
        .s_axis_tvalid(accept),
        .s_axis_tready(pend_in_ready),
        .m_axis_tdata({pend_first, pend_count}),
        .m_axis_tvalid(pend_valid),
        .m_axis_tready(pend_pop),
        .count(pending)
    );

    reg               active_reg;
    reg [31:0]        left_reg;         // elements to give
    reg [SEL_W-1:0]   sel_reg;          // chunk of the beat
    reg [FINE_W-1:0]  fine_reg;         // lane of the first element
    reg               carry_valid_reg;
    reg [CHUNK_W-1:0] carry_reg;        // the chunk before, where the first lane is not 0
    reg [CHUNK_W-1:0] out_reg;
    reg [W-1:0]       keep_reg;
    reg               last_reg;
    reg               valid_reg;

    wire [CHUNK_W-1:0] chunk;
    wire [CHUNK_W-1:0] moved;
    wire [FINE_W-1:0] pend_fine;
    wire [SEL_W-1:0] pend_sel;
    wire [31:0] in_carry;      // elements of this transfer that the carried chunk holds
    wire ends = left_reg <= W;
    wire out_free = !valid_reg || m_axis_tready;
    // The chunk is needed unless the carried one holds all that is left, or nothing is left at all.
    wire needs = left_reg != 0 && !(carry_valid_reg && left_reg <= in_carry);
    wire fills = needs && fine_reg != 0 && !carry_valid_reg && left_reg > in_carry;
    wire move = active_reg && out_free && (!needs || beat_valid);
    wire give = move && !fills;
    wire finish = give && ends;
    wire take = move && needs;

    assign pend_pop = !active_reg || finish;
    // A beat is done with when its last chunk is taken, or the last chunk of the transfer.
    wire final_chunk = finish || (carry_valid_reg && left_reg <= W + in_carry);
    assign beat_pop = take && (sel_reg == LAST_SEL || CHUNKS == 1 || final_chunk);

    genvar k;
    generate
        if (CHUNKS > 1) begin : narrow
            assign chunk = beat[sel_reg*CHUNK_W +: CHUNK_W];
            assign pend_sel = pend_first[BEAT_LOG2-ELEM_LOG2-1 -: SEL_W];
        end else begin : narrow
            assign chunk = beat;
            assign pend_sel = 1'b0;
        end
        if (W > 1) begin : shift
            // {chunk, carry} moved down by `fine` lanes; without a carry all of it comes from the chunk.
            wire [2*CHUNK_W-1:0] pair = {chunk, carry_valid_reg ? carry_reg : chunk};
            assign pend_fine = pend_first[FINE_W-1:0];
            assign moved = fine_reg == 0 ? chunk : pair[fine_reg*ELEM_W +: CHUNK_W];
            assign in_carry = W - {{(32-FINE_W){1'b0}}, fine_reg};
        end else begin : shift
            assign pend_fine = 1'b0;
            assign moved = chunk;
            assign in_carry = 32'd1;
        end
        for (k = 0; k < W; k = k + 1) begin : lane
            always @(posedge clk) if (give) keep_reg[k] <= left_reg > k;
        end
    endgenerate

    always @(posedge clk) begin
        if (m_axis_tready) valid_reg <= 1'b0;
        if (give) begin
            out_reg <= moved;
            last_reg <= ends;
            valid_reg <= 1'b1;
            left_reg <= left_reg - W;
        end
        if (take) begin
            carry_reg <= chunk;
            carry_valid_reg <= fine_reg != 0;
            sel_reg <= sel_reg + 1'b1;
        end
        if (finish) begin
            active_reg <= 1'b0;
        end
        if (pend_pop) begin
            active_reg <= pend_valid;
            left_reg <= pend_count;
            sel_reg <= pend_sel;
            fine_reg <= pend_fine;
            carry_valid_reg <= 1'b0;
        end
        if (rst) begin
            active_reg <= 1'b0;
            valid_reg <= 1'b0;
        end
    end

    assign m_axis_tdata = out_reg;
    assign m_axis_tkeep = keep_reg;
    assign m_axis_tlast = last_reg;
    assign m_axis_tvalid = valid_reg;

    // ---- CRC, errors, and whether anything is under way.

    reg first_reg;
    reg error_reg;

    crc32_unit #(
        .ELEM_W(ELEM_W),
        .LANES(W)
    ) crc32 (
        .clk(clk),
        .rst(rst),
        .data(out_reg),
        .keep(keep_reg),
        .valid(valid_reg && m_axis_tready),
        .first(first_reg),
        .crc(crc)
    );

    always @(posedge clk) begin
        if (valid_reg && m_axis_tready) first_reg <= last_reg;
        if (clear) error_reg <= 1'b0;
        if (m_axi_rvalid && m_axi_rresp[1]) error_reg <= 1'b1;
        if (rst) begin
            first_reg <= 1'b1;
            error_reg <= 1'b0;
        end
    end

    assign error = error_reg;
    assign busy = req_active_reg || pending != 0 || active_reg || valid_reg;

endmodule

/* verilator lint_on PINCONNECTEMPTY */
/* verilator lint_on UNUSEDSIGNAL */

`default_nettype wire
