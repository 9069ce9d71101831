// Shares one AXI4 read port between PORTS readers: addresses in turn (round robin), data by id.
//
// One address per cycle. A reader's id is its number, so the memory may answer different readers in any order. Readers ask for
// no more than they have room for, so data is never held back: `m_axi_rready` is high for ever.

`default_nettype none

module axi_read_arbiter #(
    // Readers: 1 to 2**AXI_ID_W.
    parameter PORTS = 4,
    // Bits of an AXI id: 1 to 16.
    parameter AXI_ID_W = 4,
    // Bits of an address in beats, and of a burst's length.
    parameter BEAT_W = 36,
    parameter LEN_W = 4,
    // Bursts that all readers together may have under way: 1 or more.
    parameter OPEN = 256
) (
    input  wire                    clk,
    input  wire                    rst,

    // High: no further burst is begun. `idle`: every burst that was begun has been answered in full.
    input  wire                    hold,
    output wire                    idle,

    input  wire [PORTS*BEAT_W-1:0] s_axi_araddr,
    input  wire [PORTS*LEN_W-1:0]  s_axi_arlen,
    input  wire [PORTS-1:0]        s_axi_arvalid,
    output wire [PORTS-1:0]        s_axi_arready,
    // Data and response go from the port to all readers alike; this says whose they are.
    output wire [PORTS-1:0]        s_axi_rvalid,

    output wire [AXI_ID_W-1:0]     m_axi_arid,
    output wire [BEAT_W-1:0]       m_axi_araddr,
    output wire [LEN_W-1:0]        m_axi_arlen,
    output wire                    m_axi_arvalid,
    input  wire                    m_axi_arready,
    input  wire [AXI_ID_W-1:0]     m_axi_rid,
    input  wire                    m_axi_rlast,
    input  wire                    m_axi_rvalid,
    output wire                    m_axi_rready
);

    param_check #(.OK(PORTS >= 1 && PORTS <= (1 << AXI_ID_W)), .MESSAGE("PORTS must be 1 to 2**AXI_ID_W")) ports_check ();
    param_check #(.OK(AXI_ID_W >= 1 && AXI_ID_W <= 16), .MESSAGE("AXI_ID_W must be 1 to 16")) id_check ();

    localparam OPEN_W = $clog2(OPEN + 1);

    reg [AXI_ID_W-1:0] id_reg;       // also the reader that was served last
    reg [BEAT_W-1:0]   addr_reg;
    reg [LEN_W-1:0]    len_reg;
    reg                valid_reg;
    reg [OPEN_W-1:0]   open_reg;     // bursts that were begun and not answered

    wire [PORTS-1:0] chosen;
    wire [AXI_ID_W-1:0] chosen_id;
    reg [BEAT_W-1:0] chosen_addr;
    reg [LEN_W-1:0] chosen_len;
    integer n;
    wire free = (!valid_reg || m_axi_arready) && !hold;
    wire begun = free && |s_axi_arvalid;
    wire ended = m_axi_rvalid && m_axi_rlast;

    round_robin #(
        .PORTS(PORTS),
        .NUMBER_W(AXI_ID_W)
    ) turn (
        .request(s_axi_arvalid),
        .last(id_reg),
        .chosen(chosen),
        .number(chosen_id)
    );

    // By AND and OR, since there are seldom as many readers as numbers for them.
    always @* begin
        chosen_addr = {BEAT_W{1'b0}};
        chosen_len = {LEN_W{1'b0}};
        for (n = 0; n < PORTS; n = n + 1) begin
            chosen_addr = chosen_addr | (s_axi_araddr[n*BEAT_W +: BEAT_W] & {BEAT_W{chosen[n]}});
            chosen_len = chosen_len | (s_axi_arlen[n*LEN_W +: LEN_W] & {LEN_W{chosen[n]}});
        end
    end

    assign s_axi_arready = free ? chosen : {PORTS{1'b0}};

    always @(posedge clk) begin
        if (m_axi_arready) valid_reg <= 1'b0;
        if (begun) begin
            valid_reg <= 1'b1;
            id_reg <= chosen_id;
            addr_reg <= chosen_addr;
            len_reg <= chosen_len;
        end
        // One more or, as all bits set, one less.
        if (begun != ended) open_reg <= open_reg + {{(OPEN_W-1){ended}}, 1'b1};
        if (rst) begin
            valid_reg <= 1'b0;
            id_reg <= 0;
            open_reg <= 0;
        end
    end

    assign m_axi_arid = id_reg;
    assign m_axi_araddr = addr_reg;
    assign m_axi_arlen = len_reg;
    assign m_axi_arvalid = valid_reg;
    assign m_axi_rready = 1'b1;
    assign idle = open_reg == 0;

    genvar k;
    generate
        for (k = 0; k < PORTS; k = k + 1) begin : client
            assign s_axi_rvalid[k] = m_axi_rvalid && m_axi_rid == k;
        end
    endgenerate

endmodule

`default_nettype wire
