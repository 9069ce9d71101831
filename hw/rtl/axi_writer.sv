// Burst DMA from a stream to AXI4 memory: any number of elements to any element-aligned address, one beat of W per cycle.
//
// One transfer at a time; `cmd_ready` says that the one before has been answered in full. Bursts end at multiples of BURST beats,
// which also keeps them inside 4 KiB. A burst is announced only when all its beats wait here, so a shared port is never held up
// by a slow stream. Byte strobes leave the neighbours of the first and last element alone. An empty transfer takes one beat.
// The CRC-32 of the bytes of each transfer, in order, is there when the transfer has ended. An error response, or a stream that
// ends elsewhere than after `cmd_count` elements, raises `error` until the next `clear`.

`default_nettype none

// Of a response only the bit that says error counts; with one lane nothing is carried.
/* verilator lint_off PINCONNECTEMPTY */
/* verilator lint_off UNUSEDSIGNAL */

module axi_writer #(
    // Bits of an element: 32 or 64.
    parameter ELEM_W = 32,
    // Elements of a stream beat: 1, 2, 4 or 8.
    parameter W = 4,
    // Bits of the memory port: a power of two, at least W * ELEM_W, at most 1024.
    parameter DATA_W = 128 * W,
    // Beats of the longest burst: a power of two, 2 or more, and BURST * DATA_W / 8 at most 4096.
    parameter BURST = 16,
    // Beats that may wait to be written: a power of two, at least 2 * BURST.
    parameter FIFO_BEATS = 2 * BURST
) (
    input  wire                   clk,
    input  wire                   rst,

    input  wire [63:0]            cmd_addr,
    // Elements; at most 2**31.
    input  wire [31:0]            cmd_count,
    input  wire                   cmd_valid,
    output wire                   cmd_ready,

    input  wire [W*ELEM_W-1:0]    s_axis_tdata,
    input  wire                   s_axis_tlast,
    input  wire                   s_axis_tvalid,
    output wire                   s_axis_tready,

    output wire [63:0]            m_axi_awaddr,
    output wire [7:0]             m_axi_awlen,
    output wire                   m_axi_awvalid,
    input  wire                   m_axi_awready,
    output wire [DATA_W-1:0]      m_axi_wdata,
    output wire [DATA_W/8-1:0]    m_axi_wstrb,
    output wire                   m_axi_wlast,
    output wire                   m_axi_wvalid,
    input  wire                   m_axi_wready,
    input  wire [1:0]             m_axi_bresp,
    input  wire                   m_axi_bvalid,

    output wire                   busy,
    input  wire                   clear,
    output wire                   error,
    output wire [31:0]            crc
);

    localparam ELEM_LOG2 = $clog2(ELEM_W / 8);
    localparam BEAT_LOG2 = $clog2(DATA_W / 8);
    localparam CHUNK_W = W * ELEM_W;
    localparam CHUNKS = DATA_W / CHUNK_W;
    localparam ELEMS = DATA_W / ELEM_W;
    localparam SEL_W = CHUNKS > 1 ? $clog2(CHUNKS) : 1;
    localparam FINE_W = W > 1 ? $clog2(W) : 1;
    localparam BURST_LOG2 = $clog2(BURST);
    localparam FIFO_LOG2 = $clog2(FIFO_BEATS);
    localparam BEATS_W = 32 + ELEM_LOG2 - BEAT_LOG2 + 1;
    localparam [31:0] MOST = BURST;
    localparam [BURST_LOG2:0] FULL_BURST = MOST[BURST_LOG2:0];
    localparam [31:0] LAST_CHUNK = CHUNKS - 1;
    localparam [SEL_W-1:0] LAST_SEL = LAST_CHUNK[SEL_W-1:0];

    param_check #(.OK(ELEM_W == 32 || ELEM_W == 64), .MESSAGE("ELEM_W must be 32 or 64")) elem_check ();
    param_check #(.OK(W == 1 || W == 2 || W == 4 || W == 8), .MESSAGE("W must be 1, 2, 4 or 8")) lanes_check ();
    param_check #(.OK(DATA_W == (8 << BEAT_LOG2) && DATA_W >= CHUNK_W && DATA_W <= 1024), .MESSAGE("DATA_W must be a power of two from W * ELEM_W to 1024")) data_check ();
    param_check #(.OK(BURST == (1 << BURST_LOG2) && BURST >= 2 && BURST * DATA_W / 8 <= 4096), .MESSAGE("BURST must be a power of two of at least 2 and a burst at most 4096 bytes")) burst_check ();
    param_check #(.OK(FIFO_BEATS == (1 << FIFO_LOG2) && FIFO_BEATS >= 2 * BURST), .MESSAGE("FIFO_BEATS must be a power of two of at least 2 * BURST")) fifo_check ();

    // ---- Elements become chunks in their place of a beat, and chunks become beats.

    reg                  active_reg;       // taking elements
    reg                  spill_reg;        // the last elements are in the carried chunk alone
    reg [31:0]           left_reg;         // elements to take
    reg [SEL_W-1:0]      sel_reg;          // chunk of the beat
    reg [FINE_W-1:0]     fine_reg;         // lane of the first element
    reg [BURST_LOG2-1:0] place_reg;        // beat of the burst
    reg [CHUNK_W-1:0]    carry_reg;        // the chunk before, where the first lane is not 0
    reg [W-1:0]          carry_keep_reg;

    wire fifo_ready;
    wire accept_cmd = cmd_valid && cmd_ready;
    wire ends = left_reg <= W;
    wire accept = s_axis_tvalid && s_axis_tready;
    wire move = accept || (spill_reg && fifo_ready);
    wire [W-1:0] keep;
    wire [W-1:0] over;                     // lanes of this beat that go to the next chunk
    wire [CHUNK_W-1:0] chunk;
    wire [W-1:0] chunk_keep;
    wire spills = accept && ends && |(keep & over);
    wire final_chunk = spill_reg || (accept && ends && !spills);
    // An empty transfer has no beat to push.
    wire push = move && (sel_reg == LAST_SEL || CHUNKS == 1 || final_chunk) && (spill_reg || left_reg != 0);
    wire push_last = final_chunk || &place_reg;

    assign s_axis_tready = active_reg && fifo_ready;

    genvar k;
    generate
        for (k = 0; k < W; k = k + 1) begin : lane
            assign keep[k] = !spill_reg && left_reg > k;
        end
        if (W > 1) begin : shift
            // Lanes below `fine` are the end of the beat before.
            wire [2*CHUNK_W-1:0] pair = {s_axis_tdata, carry_reg};
            wire [2*W-1:0] pair_keep = {keep, carry_keep_reg};
            wire [31:0] up = W - {{(32-FINE_W){1'b0}}, fine_reg};
            assign chunk = fine_reg == 0 ? s_axis_tdata : pair[up*ELEM_W +: CHUNK_W];
            assign chunk_keep = fine_reg == 0 ? keep : pair_keep[up +: W];
            assign over = ~({W{1'b1}} >> fine_reg);
        end else begin : shift
            assign chunk = s_axis_tdata;
            assign chunk_keep = keep;
            assign over = 1'b0;
        end
    endgenerate

    always @(posedge clk) begin
        if (move) begin
            carry_reg <= s_axis_tdata;
            carry_keep_reg <= keep;
            sel_reg <= CHUNKS == 1 ? {SEL_W{1'b0}} : sel_reg + 1'b1;
            left_reg <= left_reg - W;
            spill_reg <= spills;
            if (push) place_reg <= place_reg + 1'b1;
        end
        if (accept && ends) active_reg <= 1'b0;
        if (accept_cmd) begin
            active_reg <= 1'b1;
            left_reg <= cmd_count;
            sel_reg <= CHUNKS == 1 ? {SEL_W{1'b0}} : cmd_addr[BEAT_LOG2-1 -: SEL_W];
            fine_reg <= W == 1 ? {FINE_W{1'b0}} : cmd_addr[ELEM_LOG2 +: FINE_W];
            place_reg <= cmd_addr[BEAT_LOG2 +: BURST_LOG2];
            carry_keep_reg <= {W{1'b0}};
        end
        if (rst) begin
            active_reg <= 1'b0;
            spill_reg <= 1'b0;
        end
    end

    wire [DATA_W-1:0] beat;
    wire [ELEMS-1:0] beat_keep;

    generate
        for (k = 0; k < CHUNKS; k = k + 1) begin : place
            localparam [SEL_W-1:0] HERE = k;
            reg [CHUNK_W-1:0] held_reg;
            reg [W-1:0] held_keep_reg;
            wire now = CHUNKS == 1 || sel_reg == HERE;
            assign beat[k*CHUNK_W +: CHUNK_W] = now ? chunk : held_reg;
            assign beat_keep[k*W +: W] = now ? chunk_keep : held_keep_reg;
            always @(posedge clk) begin
                if (move && now) begin
                    held_reg <= chunk;
                    held_keep_reg <= chunk_keep;
                end
                if (accept_cmd || push) held_keep_reg <= {W{1'b0}};
            end
        end
    endgenerate

    // ---- Beats wait until their burst is whole.

    wire [ELEMS-1:0] out_keep;
    wire out_last;
    wire out_valid;
    wire out_pop;

    stream_fifo #(
        .WIDTH(DATA_W + ELEMS + 1),
        .DEPTH(FIFO_BEATS)
    ) beat_fifo (
        .clk(clk),
        .rst(rst),
        .s_axis_tdata({push_last, beat_keep, beat}),
        .s_axis_tvalid(push),
        .s_axis_tready(fifo_ready),
        .m_axis_tdata({out_last, out_keep, m_axi_wdata}),
        .m_axis_tvalid(out_valid),
        .m_axis_tready(out_pop),
        .count()
    );

    // ---- Bursts: announced when whole, sent when announced, done when answered.

    reg [63-BEAT_LOG2:0] aw_beat_reg;      // address of the next beat to announce, in beats
    reg [BEATS_W-1:0]    aw_left_reg;      // beats to announce
    reg [63:0]           aw_addr_reg;
    reg [7:0]            aw_len_reg;
    reg                  aw_valid_reg;
    reg [FIFO_LOG2:0]    whole_reg;        // bursts that wait whole and are not announced
    reg [FIFO_LOG2:0]    send_reg;         // bursts that are announced and not sent
    reg [15:0]           open_reg;         // bursts that are announced and not answered

    wire [BURST_LOG2:0] to_edge = FULL_BURST - {1'b0, aw_beat_reg[BURST_LOG2-1:0]};
    wire short_burst = aw_left_reg < {{(BEATS_W-BURST_LOG2-1){1'b0}}, to_edge};
    wire [BURST_LOG2:0] burst = short_burst ? aw_left_reg[BURST_LOG2:0] : to_edge;
    wire issue = whole_reg != 0 && (!aw_valid_reg || m_axi_awready);
    wire announced = aw_valid_reg && m_axi_awready;
    wire sent = out_pop && out_last;

    wire [BEAT_LOG2-1:0] cmd_byte = cmd_addr[BEAT_LOG2-1:0];
    wire [32+ELEM_LOG2:0] cmd_bytes = {1'b0, cmd_count, {ELEM_LOG2{1'b0}}} + {{(33+ELEM_LOG2-BEAT_LOG2){1'b0}}, cmd_byte};
    wire [BEATS_W-1:0] cmd_beats = cmd_bytes[32+ELEM_LOG2:BEAT_LOG2] + {{(BEATS_W-1){1'b0}}, |cmd_bytes[BEAT_LOG2-1:0]};

    always @(posedge clk) begin
        if (m_axi_awready) aw_valid_reg <= 1'b0;
        if (issue) begin
            aw_addr_reg <= {aw_beat_reg, {BEAT_LOG2{1'b0}}};
            aw_len_reg <= {{(7-BURST_LOG2){1'b0}}, burst} - 8'd1;
            aw_valid_reg <= 1'b1;
            aw_beat_reg <= aw_beat_reg + {{(63-BEAT_LOG2-BURST_LOG2){1'b0}}, burst};
            aw_left_reg <= aw_left_reg - {{(BEATS_W-BURST_LOG2-1){1'b0}}, burst};
        end
        whole_reg <= whole_reg + {{FIFO_LOG2{1'b0}}, push && push_last} - {{FIFO_LOG2{1'b0}}, issue};
        send_reg <= send_reg + {{FIFO_LOG2{1'b0}}, announced} - {{FIFO_LOG2{1'b0}}, sent};
        open_reg <= open_reg + {15'd0, announced} - {15'd0, m_axi_bvalid};
        if (accept_cmd) begin
            aw_beat_reg <= cmd_addr[63:BEAT_LOG2];
            aw_left_reg <= cmd_beats;
        end
        if (rst) begin
            aw_valid_reg <= 1'b0;
            whole_reg <= 0;
            send_reg <= 0;
            open_reg <= 0;
        end
    end

    assign m_axi_awaddr = aw_addr_reg;
    assign m_axi_awlen = aw_len_reg;
    assign m_axi_awvalid = aw_valid_reg;
    assign m_axi_wlast = out_last;
    assign m_axi_wvalid = out_valid && send_reg != 0;
    assign out_pop = m_axi_wvalid && m_axi_wready;

    generate
        for (k = 0; k < ELEMS; k = k + 1) begin : strobe
            assign m_axi_wstrb[k*ELEM_W/8 +: ELEM_W/8] = {(ELEM_W/8){out_keep[k]}};
        end
    endgenerate

    // ---- CRC, errors, and whether anything is under way.

    reg first_reg;
    reg error_reg;

    crc32_unit #(
        .ELEM_W(ELEM_W),
        .LANES(W)
    ) crc32 (
        .clk(clk),
        .rst(rst),
        .data(s_axis_tdata),
        .keep(keep),
        .valid(accept),
        .first(first_reg),
        .crc(crc)
    );

    always @(posedge clk) begin
        if (accept) first_reg <= ends;
        if (clear) error_reg <= 1'b0;
        if (m_axi_bvalid && m_axi_bresp[1]) error_reg <= 1'b1;
        if (accept && s_axis_tlast != ends) error_reg <= 1'b1;
        if (rst) begin
            first_reg <= 1'b1;
            error_reg <= 1'b0;
        end
    end

    assign error = error_reg;
    assign busy = active_reg || spill_reg || whole_reg != 0 || aw_valid_reg || open_reg != 0;
    assign cmd_ready = !busy;

endmodule

/* verilator lint_on PINCONNECTEMPTY */
/* verilator lint_on UNUSEDSIGNAL */

`default_nettype wire
