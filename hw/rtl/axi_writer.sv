// Burst DMA from a stream to AXI4 memory: elements to any element-aligned address on, one beat of W per cycle.
//
// One transfer at a time, as long as its stream; `cmd_ready` says that the one before has been answered in full. Bursts end at
// multiples of BURST beats, which also keeps them inside 4 KiB. A burst is announced only when all its beats wait here, so a shared
// port is never held up by a slow stream. Strobes leave the neighbours of the first and last element alone; where they are low, data
// are what happens to be there. A stream of one empty beat writes nothing.

`default_nettype none

// With one lane nothing is carried; the lowest bits of an address are those of an element.
/* verilator lint_off PINCONNECTEMPTY */
/* verilator lint_off UNUSEDSIGNAL */

module axi_writer #(
    // Bits of an element: 32 or 64.
    parameter ELEM_W = 32,
    // Elements of a stream beat: 1, 2, 4 or 8.
    parameter W = 4,
    // Bits of the memory port: a power of two, at least W * ELEM_W, at most 1024.
    parameter DATA_W = 128 * W,
    // Bits of a byte address: 16 to 64.
    parameter ADDR_W = 40,
    // Beats of the longest burst: a power of two, 2 or more, and BURST * DATA_W / 8 at most 4096.
    parameter BURST = 16,
    // Beats that may wait to be written: a power of two, at least 2 * BURST.
    parameter FIFO_BEATS = 2 * BURST,
    // Bits of a beat's address.
    localparam BEAT_W = ADDR_W - $clog2(DATA_W / 8)
) (
    input  wire                     clk,
    input  wire                     rst,

    input  wire [ADDR_W-1:0]        cmd_addr,
    input  wire                     cmd_valid,
    output wire                     cmd_ready,

    // Beats but the last are full.
    input  wire [W*ELEM_W-1:0]      s_axis_tdata,
    input  wire [W-1:0]             s_axis_tkeep,
    input  wire                     s_axis_tlast,
    input  wire                     s_axis_tvalid,
    output wire                     s_axis_tready,

    // Address in beats, and beats less one; a strobe for each word of 32 bits.
    output wire [BEAT_W-1:0]        m_axi_awaddr,
    output wire [$clog2(BURST)-1:0] m_axi_awlen,
    output wire                     m_axi_awvalid,
    input  wire                     m_axi_awready,
    output wire [DATA_W-1:0]        m_axi_wdata,
    output wire [DATA_W/32-1:0]     m_axi_wstrb,
    output wire                     m_axi_wlast,
    output wire                     m_axi_wvalid,
    input  wire                     m_axi_wready,
    input  wire                     m_axi_bvalid,

    // The beat offered is the transfer's first.
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
    localparam BURST_LOG2 = $clog2(BURST);
    localparam FIFO_LOG2 = $clog2(FIFO_BEATS);
    localparam HIGH_W = BEAT_W - BURST_LOG2;
    // Bursts that wait here: as many full ones as there is room for, and the first and the last.
    localparam WHOLE_W = FIFO_LOG2 - BURST_LOG2 + 2;
    // Bursts that wait for their answer: up to 2**(OPEN_W-1) and one more.
    localparam OPEN_W = 6;
    localparam [31:0] LAST_CHUNK = CHUNKS - 1;
    localparam [SEL_W-1:0] LAST_SEL = LAST_CHUNK[SEL_W-1:0];

    param_check #(.OK(ELEM_W == 32 || ELEM_W == 64), .MESSAGE("ELEM_W must be 32 or 64")) elem_check ();
    param_check #(.OK(W == 1 || W == 2 || W == 4 || W == 8), .MESSAGE("W must be 1, 2, 4 or 8")) lanes_check ();
    param_check #(.OK(DATA_W == (8 << BEAT_LOG2) && DATA_W >= CHUNK_W && DATA_W <= 1024), .MESSAGE("DATA_W must be a power of two from W * ELEM_W to 1024")) data_check ();
    param_check #(.OK(ADDR_W >= 16 && ADDR_W <= 64), .MESSAGE("ADDR_W must be 16 to 64")) addr_check ();
    param_check #(.OK(BURST == (1 << BURST_LOG2) && BURST >= 2 && BURST * DATA_W / 8 <= 4096), .MESSAGE("BURST must be a power of two of at least 2 and a burst at most 4096 bytes")) burst_check ();
    param_check #(.OK(FIFO_BEATS == (1 << FIFO_LOG2) && FIFO_BEATS >= 2 * BURST), .MESSAGE("FIFO_BEATS must be a power of two of at least 2 * BURST")) fifo_check ();

    // ---- Elements become chunks in their place of a beat, and chunks become beats.

    reg                  active_reg;       // taking elements
    reg [SEL_W-1:0]      sel_reg;          // chunk of the beat
    reg [BURST_LOG2-1:0] place_reg;        // beat of the burst

    reg                  fresh_reg;        // the next chunk is a beat's first
    reg [DATA_W-1:0]     beat_reg;
    reg [ELEMS-1:0]      beat_keep_reg;
    reg                  beat_last_reg;    // of its burst
    reg                  beat_valid_reg;   // it is whole

    wire fifo_ready;
    wire room = !beat_valid_reg || fifo_ready;
    wire spilling;                         // the last elements are in the carried chunk alone
    wire spills;                           // they will be
    wire accept_cmd = cmd_valid && cmd_ready;
    wire accept = s_axis_tvalid && s_axis_tready;
    wire move = accept || (spilling && room);
    wire [CHUNK_W-1:0] chunk;
    wire [W-1:0] chunk_keep;
    wire final_chunk = spilling || (accept && s_axis_tlast && !spills);
    // An empty transfer has no beat to push.
    wire push = move && (sel_reg == LAST_SEL || final_chunk) && (spilling || s_axis_tkeep[0]);
    wire push_last = final_chunk || &place_reg;

    assign s_axis_tready = active_reg && room;

    genvar k;
    generate
        if (W > 1) begin : shift
            reg spill_reg;
            reg [FINE_W-1:0] fine_reg;         // lane of the first element
            reg [CHUNK_W-1:0] carry_reg;       // the chunk before, where the first lane is not 0
            reg [W-1:0] carry_keep_reg;
            wire [W-1:0] keep = spill_reg ? {W{1'b0}} : s_axis_tkeep;
            // Lanes below `fine` are the end of the beat before.
            wire [2*CHUNK_W-1:0] both = {s_axis_tdata, carry_reg};
            wire [2*W-1:0] both_keep = {keep, carry_keep_reg};
            wire [31:0] up = W - {{(32-FINE_W){1'b0}}, fine_reg};
            wire [W-1:0] over = ~({W{1'b1}} >> fine_reg);   // lanes of this beat that go to the next chunk

            assign spilling = spill_reg;
            assign spills = accept && s_axis_tlast && |(keep & over);
            assign chunk = fine_reg == 0 ? s_axis_tdata : both[up*ELEM_W +: CHUNK_W];
            assign chunk_keep = fine_reg == 0 ? keep : both_keep[up +: W];
            always @(posedge clk) begin
                if (move) begin
                    carry_reg <= s_axis_tdata;
                    carry_keep_reg <= keep;
                    spill_reg <= spills;
                end
                if (accept_cmd) begin
                    fine_reg <= cmd_addr[ELEM_LOG2 +: FINE_W];
                    carry_keep_reg <= {W{1'b0}};
                end
                if (rst) spill_reg <= 1'b0;
            end
        end else begin : shift
            assign spilling = 1'b0;
            assign spills = 1'b0;
            assign chunk = s_axis_tdata;
            assign chunk_keep = s_axis_tkeep;
        end
    endgenerate

    always @(posedge clk) begin
        if (move) begin
            sel_reg <= CHUNKS == 1 ? {SEL_W{1'b0}} : sel_reg + 1'b1;
            if (push) place_reg <= place_reg + 1'b1;
            fresh_reg <= push;
            beat_last_reg <= push_last;
        end
        if (room) beat_valid_reg <= push;
        if (accept && s_axis_tlast) active_reg <= 1'b0;
        if (accept_cmd) begin
            active_reg <= 1'b1;
            sel_reg <= CHUNKS == 1 ? {SEL_W{1'b0}} : cmd_addr[BEAT_LOG2-1 -: SEL_W];
            place_reg <= cmd_addr[BEAT_LOG2 +: BURST_LOG2];
            fresh_reg <= 1'b1;
        end
        if (rst) begin
            active_reg <= 1'b0;
            beat_valid_reg <= 1'b0;
        end
    end

    generate
        for (k = 0; k < CHUNKS; k = k + 1) begin : place
            localparam [SEL_W-1:0] HERE = k;

            always @(posedge clk) begin
                if (move && sel_reg == HERE) begin
                    beat_reg[k*CHUNK_W +: CHUNK_W] <= chunk;
                    beat_keep_reg[k*W +: W] <= chunk_keep;
                end else if (move && fresh_reg) begin
                    beat_keep_reg[k*W +: W] <= {W{1'b0}};
                end
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
        .s_axis_tdata({beat_last_reg, beat_keep_reg, beat_reg}),
        .s_axis_tvalid(beat_valid_reg),
        .s_axis_tready(fifo_ready),
        .m_axis_tdata({out_last, out_keep, m_axi_wdata}),
        .m_axis_tvalid(out_valid),
        .m_axis_tready(out_pop),
        .count()
    );

    // ---- Bursts: announced when whole, sent when announced, done when answered.

    reg [HIGH_W-1:0]     aw_high_reg;      // which burst is announced next, and its first beat
    reg [BURST_LOG2-1:0] aw_low_reg;
    reg [BURST_LOG2-1:0] end_low_reg;      // beat of the burst that was pushed last
    reg [BEAT_W-1:0]     aw_addr_reg;
    reg [BURST_LOG2-1:0] aw_len_reg;
    reg                  aw_valid_reg;
    reg [WHOLE_W-1:0]    whole_reg;        // bursts that wait whole and are not announced
    reg [FIFO_LOG2:0]    send_reg;         // bursts that are announced and not sent
    reg [OPEN_W-1:0]     open_reg;         // bursts that are announced and not answered
    reg                  first_reg;

    wire completed = beat_valid_reg && fifo_ready && beat_last_reg;
    wire final_burst = !active_reg && !spilling && !beat_valid_reg && whole_reg == 1;
    wire issue = whole_reg != 0 && !open_reg[OPEN_W-1] && (!aw_valid_reg || m_axi_awready);
    wire announced = aw_valid_reg && m_axi_awready;
    wire sent = out_pop && out_last;

    always @(posedge clk) begin
        if (m_axi_awready) aw_valid_reg <= 1'b0;
        if (issue) begin
            aw_addr_reg <= {aw_high_reg, aw_low_reg};
            aw_len_reg <= (final_burst ? end_low_reg : {BURST_LOG2{1'b1}}) - aw_low_reg;
            aw_valid_reg <= 1'b1;
            aw_high_reg <= aw_high_reg + 1'b1;
            aw_low_reg <= {BURST_LOG2{1'b0}};
        end
        if (push) end_low_reg <= place_reg;
        if (out_pop) first_reg <= 1'b0;
        // One more or, as all bits set, one less.
        if (completed != issue) whole_reg <= whole_reg + {{(WHOLE_W-1){issue}}, 1'b1};
        if (announced != sent) send_reg <= send_reg + {{FIFO_LOG2{sent}}, 1'b1};
        if (announced != m_axi_bvalid) open_reg <= open_reg + {{(OPEN_W-1){m_axi_bvalid}}, 1'b1};
        if (accept_cmd) begin
            {aw_high_reg, aw_low_reg} <= cmd_addr[ADDR_W-1:BEAT_LOG2];
            first_reg <= 1'b1;
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
    assign sum_first = first_reg;

    generate
        for (k = 0; k < ELEMS; k = k + 1) begin : strobe
            assign m_axi_wstrb[k*(ELEM_W/32) +: ELEM_W/32] = {(ELEM_W/32){out_keep[k]}};
        end
    endgenerate

    assign busy = active_reg || spilling || beat_valid_reg || whole_reg != 0 || aw_valid_reg || open_reg != 0;
    assign cmd_ready = !busy;

endmodule

/* verilator lint_on PINCONNECTEMPTY */
/* verilator lint_on UNUSEDSIGNAL */

`default_nettype wire
