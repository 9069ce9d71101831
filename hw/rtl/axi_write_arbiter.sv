// Shares one AXI4 write port between PORTS writers: bursts in turn (round robin), answers by id.
//
// One address per cycle; data follow in the order of the addresses, so addresses may run up to ORDER bursts ahead. A writer announces
// a burst only when all its data wait, so the port's data channel does not idle inside a burst. Answers are always taken.

`default_nettype none

// Nobody asks how many bursts wait.
/* verilator lint_off PINCONNECTEMPTY */

module axi_write_arbiter #(
    // Writers: 1 to 2**AXI_ID_W.
    parameter PORTS = 3,
    // Bits of the memory port.
    parameter DATA_W = 512,
    // Bits of an AXI id: 1 to 16.
    parameter AXI_ID_W = 4,
    // Bits of an address in beats, and of a burst's length.
    parameter BEAT_W = 34,
    parameter LEN_W = 4,
    // Bursts whose data are still to come: a power of two, 2 or more.
    parameter ORDER = 8,
    // Bursts that all writers together may have under way: 1 or more.
    parameter OPEN = 128
) (
    input  wire                      clk,
    input  wire                      rst,

    // High: no further burst is begun. `idle`: every burst that was begun has been answered in full.
    input  wire                      hold,
    output wire                      idle,

    input  wire [PORTS*BEAT_W-1:0]   s_axi_awaddr,
    input  wire [PORTS*LEN_W-1:0]    s_axi_awlen,
    input  wire [PORTS-1:0]          s_axi_awvalid,
    output wire [PORTS-1:0]          s_axi_awready,
    input  wire [PORTS*DATA_W-1:0]   s_axi_wdata,
    input  wire [PORTS*DATA_W/32-1:0] s_axi_wstrb,
    input  wire [PORTS-1:0]          s_axi_wlast,
    input  wire [PORTS-1:0]          s_axi_wvalid,
    output wire [PORTS-1:0]          s_axi_wready,
    // The response goes from the port to all writers alike; this says whose it is.
    output wire [PORTS-1:0]          s_axi_bvalid,

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
    // Whose beat is offered.
    output wire [AXI_ID_W-1:0]       m_axi_wid,
    input  wire [AXI_ID_W-1:0]       m_axi_bid,
    input  wire                      m_axi_bvalid,
    output wire                      m_axi_bready
);

    param_check #(.OK(PORTS >= 1 && PORTS <= (1 << AXI_ID_W)), .MESSAGE("PORTS must be 1 to 2**AXI_ID_W")) ports_check ();
    param_check #(.OK(AXI_ID_W >= 1 && AXI_ID_W <= 16), .MESSAGE("AXI_ID_W must be 1 to 16")) id_check ();

    localparam OPEN_W = $clog2(OPEN + 1);

    reg [AXI_ID_W-1:0] id_reg;       // also the writer that was served last
    reg [BEAT_W-1:0]   addr_reg;
    reg [LEN_W-1:0]    len_reg;
    reg                valid_reg;
    reg [OPEN_W-1:0]   open_reg;     // bursts that were begun and not answered

    wire [PORTS-1:0] chosen;
    wire [AXI_ID_W-1:0] chosen_id;
    reg [BEAT_W-1:0] chosen_addr;
    reg [LEN_W-1:0] chosen_len;
    wire order_ready;
    wire free = (!valid_reg || m_axi_awready) && order_ready && !hold;
    wire begun = free && |s_axi_awvalid;

    round_robin #(
        .PORTS(PORTS),
        .NUMBER_W(AXI_ID_W)
    ) turn (
        .request(s_axi_awvalid),
        .last(id_reg),
        .chosen(chosen),
        .number(chosen_id)
    );

    assign s_axi_awready = free ? chosen : {PORTS{1'b0}};

    always @(posedge clk) begin
        if (m_axi_awready) valid_reg <= 1'b0;
        // One more or, as all bits set, one less.
        if (begun != m_axi_bvalid) open_reg <= open_reg + {{(OPEN_W-1){m_axi_bvalid}}, 1'b1};
        if (begun) begin
            valid_reg <= 1'b1;
            id_reg <= chosen_id;
            addr_reg <= chosen_addr;
            len_reg <= chosen_len;
        end
        if (rst) begin
            valid_reg <= 1'b0;
            id_reg <= 0;
            open_reg <= 0;
        end
    end

    assign m_axi_awid = id_reg;
    assign m_axi_awaddr = addr_reg;
    assign m_axi_awlen = len_reg;
    assign m_axi_awvalid = valid_reg;
    assign m_axi_bready = 1'b1;
    assign idle = open_reg == 0;

    // ---- Data, in the order of the addresses.

    wire [AXI_ID_W-1:0] head;
    wire head_valid;
    wire head_pop = m_axi_wvalid && m_axi_wready && m_axi_wlast;

    stream_fifo #(
        .WIDTH(AXI_ID_W),
        .DEPTH(ORDER)
    ) order_fifo (
        .clk(clk),
        .rst(rst),
        .s_axis_tdata(chosen_id),
        .s_axis_tvalid(begun),
        .s_axis_tready(order_ready),
        .m_axis_tdata(head),
        .m_axis_tvalid(head_valid),
        .m_axis_tready(head_pop),
        .count()
    );

    // The writer at the head, as one bit of many.
    wire [PORTS-1:0] mine;
    reg [DATA_W-1:0] mine_data;
    reg [DATA_W/32-1:0] mine_strb;
    integer n;

    // By AND and OR, since there are seldom as many writers as numbers for them.
    always @* begin
        chosen_addr = {BEAT_W{1'b0}};
        chosen_len = {LEN_W{1'b0}};
        mine_data = {DATA_W{1'b0}};
        mine_strb = {(DATA_W/32){1'b0}};
        for (n = 0; n < PORTS; n = n + 1) begin
            chosen_addr = chosen_addr | (s_axi_awaddr[n*BEAT_W +: BEAT_W] & {BEAT_W{chosen[n]}});
            chosen_len = chosen_len | (s_axi_awlen[n*LEN_W +: LEN_W] & {LEN_W{chosen[n]}});
            mine_data = mine_data | (s_axi_wdata[n*DATA_W +: DATA_W] & {DATA_W{mine[n]}});
            mine_strb = mine_strb | (s_axi_wstrb[n*(DATA_W/32) +: DATA_W/32] & {(DATA_W/32){mine[n]}});
        end
    end

    assign m_axi_wdata = mine_data;
    assign m_axi_wstrb = mine_strb;
    assign m_axi_wid = head;
    assign m_axi_wlast = |(s_axi_wlast & mine);
    assign m_axi_wvalid = head_valid && |(s_axi_wvalid & mine);

    genvar k;
    generate
        for (k = 0; k < PORTS; k = k + 1) begin : client
            assign mine[k] = head == k;
            assign s_axi_wready[k] = head_valid && m_axi_wready && mine[k];
            assign s_axi_bvalid[k] = m_axi_bvalid && m_axi_bid == k;
        end
    endgenerate

endmodule

/* verilator lint_on PINCONNECTEMPTY */

`default_nettype wire
