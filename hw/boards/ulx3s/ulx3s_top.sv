// The ULX3S board: a BI-Sort engine on block RAM, commanded over the USB serial port by uart_bridge.
//
// One clock, the board's 25 MHz. The first button resets everything. LEDs: 0 the engine is at rest or waits to be asked (its interrupt),
// 1 bytes come, 2 bytes go, 3 a reset is under way, 7 a heartbeat. Names of pins are those of the board's published constraints.

`default_nettype none

// Some of the engine's outputs say what the memory knows.
/* verilator lint_off PINCONNECTEMPTY */
/* verilator lint_off UNUSEDSIGNAL */
// Registers begin with a value, because nothing resets the reset itself.
/* verilator lint_off PROCASSINIT */

module ulx3s_top #(
    // Clocks per bit of the serial line; 25 is 1,000,000 baud at 25 MHz.
    parameter DIVISOR = 25,
    // Logarithm of the clocks after which the line counts as still; 2**22 are 168 ms.
    parameter STILL_LOG2 = 22,
    // Logarithm of the bytes of block RAM.
    parameter MEM_LOG2 = 18,
    // As in bisort_engine.
    parameter KEY_W = 64,
    parameter W = 1,
    parameter PROBERS = 2,
    parameter INDEX_DEPTH = 64,
    parameter BURST = 8,
    parameter FIFO_BEATS = 16,
    parameter PENDING = 8,
    parameter QUEUE = 1,
    parameter [63:0] BUILD_HASH = 64'd0
) (
    input  wire       clk_25mhz,
    input  wire [6:0] btn,
    // Named from the point of view of the FTDI chip: it receives on rxd what we send.
    output wire       ftdi_rxd,
    input  wire       ftdi_txd,
    output wire [7:0] led,
    // High keeps the board's other processor from taking over.
    output wire       wifi_gpio0
);

    // A port of one word: half the speed of the engine's widest, which a serial line does not see, for half the wires.
    localparam DATA_W = 64;
    localparam AXI_ID_W = 4;
    // As many as the memory looks at.
    localparam ADDR_W = 24;
    localparam WORD_W = MEM_LOG2 - 2;

    wire clk = clk_25mhz;

    // ---- Reset: some cycles after power is there, and while the button is held.

    reg [7:0] boot_reg = 8'd0;
    reg [1:0] btn_reg = 2'd0;
    reg rst_reg = 1'b1, engine_rst_reg = 1'b1;
    reg [24:0] beat_reg = 25'd0;
    wire engine_rst;

    always @(posedge clk) begin
        btn_reg <= {btn_reg[0], btn[1]};
        if (btn_reg[1]) boot_reg <= 8'd0;
        else if (!(&boot_reg)) boot_reg <= boot_reg + 1'b1;
        rst_reg <= !(&boot_reg);
        engine_rst_reg <= rst_reg || engine_rst;
        beat_reg <= beat_reg + 1'b1;
    end

    // ---- The line, the engine and the memory.

    wire [11:0] awaddr, araddr;
    wire awvalid, awready, wvalid, wready, bvalid, arvalid, arready, rvalid;
    wire [31:0] wdata, rdata;
    wire link_valid, link_write, link_ready;
    wire [WORD_W-1:0] link_word;
    wire [31:0] link_wdata, link_rdata;
    wire irq;

    uart_bridge #(
        .DIVISOR(DIVISOR),
        .WORDS_LOG2(8),
        .STILL_LOG2(STILL_LOG2),
        .WORD_W(WORD_W)
    ) bridge (
        .clk(clk),
        .rst(rst_reg),
        .rx(ftdi_txd),
        .tx(ftdi_rxd),
        .engine_rst(engine_rst),
        .m_axil_awaddr(awaddr),
        .m_axil_awvalid(awvalid),
        .m_axil_awready(awready),
        .m_axil_wdata(wdata),
        .m_axil_wvalid(wvalid),
        .m_axil_wready(wready),
        .m_axil_bvalid(bvalid),
        .m_axil_araddr(araddr),
        .m_axil_arvalid(arvalid),
        .m_axil_arready(arready),
        .m_axil_rdata(rdata),
        .m_axil_rvalid(rvalid),
        .mem_valid(link_valid),
        .mem_write(link_write),
        .mem_word(link_word),
        .mem_wdata(link_wdata),
        .mem_ready(link_ready),
        .mem_rdata(link_rdata)
    );

    wire [AXI_ID_W-1:0] m_arid, m_rid, m_awid, m_bid;
    wire [63:0] m_araddr, m_awaddr;
    wire [DATA_W-1:0] m_rdata, m_wdata;
    wire [7:0] m_arlen;
    wire [DATA_W/8-1:0] m_wstrb;
    wire [1:0] m_rresp, m_bresp;
    wire m_arvalid, m_arready, m_rlast, m_rvalid, m_rready;
    wire m_awvalid, m_awready, m_wlast, m_wvalid, m_wready, m_bvalid, m_bready;

    bisort_engine #(
        .KEY_W(KEY_W),
        .W(W),
        .CLUSTERS(1),
        .PROBERS(PROBERS),
        .INDEX_DEPTH(INDEX_DEPTH),
        .DATA_W(DATA_W),
        .ADDR_W(ADDR_W),
        .BURST(BURST),
        .FIFO_BEATS(FIFO_BEATS),
        .PENDING(PENDING),
        .QUEUE(QUEUE),
        .AXI_ID_W(AXI_ID_W),
        .BUILD_HASH(BUILD_HASH)
    ) engine (
        .clk(clk),
        .rst(engine_rst_reg),
        .irq(irq),
        .s_axil_awaddr(awaddr),
        .s_axil_awprot(3'd0),
        .s_axil_awvalid(awvalid),
        .s_axil_awready(awready),
        .s_axil_wdata(wdata),
        .s_axil_wstrb(4'hF),
        .s_axil_wvalid(wvalid),
        .s_axil_wready(wready),
        .s_axil_bresp(),
        .s_axil_bvalid(bvalid),
        .s_axil_bready(1'b1),
        .s_axil_araddr(araddr),
        .s_axil_arprot(3'd0),
        .s_axil_arvalid(arvalid),
        .s_axil_arready(arready),
        .s_axil_rdata(rdata),
        .s_axil_rresp(),
        .s_axil_rvalid(rvalid),
        .s_axil_rready(1'b1),
        .m_axi_arid(m_arid),
        .m_axi_araddr(m_araddr),
        .m_axi_arlen(m_arlen),
        .m_axi_arsize(),
        .m_axi_arburst(),
        .m_axi_arvalid(m_arvalid),
        .m_axi_arready(m_arready),
        .m_axi_rid(m_rid),
        .m_axi_rdata(m_rdata),
        .m_axi_rresp(m_rresp),
        .m_axi_rlast(m_rlast),
        .m_axi_rvalid(m_rvalid),
        .m_axi_rready(m_rready),
        .m_axi_awid(m_awid),
        .m_axi_awaddr(m_awaddr),
        .m_axi_awlen(),
        .m_axi_awsize(),
        .m_axi_awburst(),
        .m_axi_awvalid(m_awvalid),
        .m_axi_awready(m_awready),
        .m_axi_wdata(m_wdata),
        .m_axi_wstrb(m_wstrb),
        .m_axi_wlast(m_wlast),
        .m_axi_wvalid(m_wvalid),
        .m_axi_wready(m_wready),
        .m_axi_bid(m_bid),
        .m_axi_bresp(m_bresp),
        .m_axi_bvalid(m_bvalid),
        .m_axi_bready(m_bready)
    );

    onchip_memory #(
        .SIZE_LOG2(MEM_LOG2),
        .DATA_W(DATA_W),
        .AXI_ID_W(AXI_ID_W)
    ) memory (
        .clk(clk),
        .rst(engine_rst_reg),
        .s_axi_arid(m_arid),
        .s_axi_araddr(m_araddr),
        .s_axi_arlen(m_arlen),
        .s_axi_arvalid(m_arvalid),
        .s_axi_arready(m_arready),
        .s_axi_rid(m_rid),
        .s_axi_rdata(m_rdata),
        .s_axi_rresp(m_rresp),
        .s_axi_rlast(m_rlast),
        .s_axi_rvalid(m_rvalid),
        .s_axi_rready(m_rready),
        .s_axi_awid(m_awid),
        .s_axi_awaddr(m_awaddr),
        .s_axi_awvalid(m_awvalid),
        .s_axi_awready(m_awready),
        .s_axi_wdata(m_wdata),
        .s_axi_wstrb(m_wstrb),
        .s_axi_wlast(m_wlast),
        .s_axi_wvalid(m_wvalid),
        .s_axi_wready(m_wready),
        .s_axi_bid(m_bid),
        .s_axi_bresp(m_bresp),
        .s_axi_bvalid(m_bvalid),
        .s_axi_bready(m_bready),
        .link_valid(link_valid),
        .link_write(link_write),
        .link_word(link_word),
        .link_wdata(link_wdata),
        .link_ready(link_ready),
        .link_rdata(link_rdata)
    );

    assign led = {beat_reg[24], 3'd0, rst_reg, !ftdi_rxd, !ftdi_txd, irq};
    assign wifi_gpio0 = 1'b1;

endmodule

/* verilator lint_on PINCONNECTEMPTY */
/* verilator lint_on UNUSEDSIGNAL */
/* verilator lint_on PROCASSINIT */

`default_nettype wire
