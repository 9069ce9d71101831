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
    parameter LEN_W = 4
) (
    input  wire                    clk,
    input  wire                    rst,

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
    input  wire                    m_axi_rvalid,
    output wire                    m_axi_rready
);

    param_check #(.OK(PORTS >= 1 && PORTS <= (1 << AXI_ID_W)), .MESSAGE("PORTS must be 1 to 2**AXI_ID_W")) ports_check ();

    reg [AXI_ID_W-1:0] id_reg;       // also the reader that was served last
    reg [BEAT_W-1:0]   addr_reg;
    reg [LEN_W-1:0]    len_reg;
    reg                valid_reg;

    wire [PORTS-1:0] chosen;
    wire [AXI_ID_W-1:0] chosen_id;
    reg [BEAT_W-1:0] chosen_addr;
    reg [LEN_W-1:0] chosen_len;
    integer n;
    wire free = !valid_reg || m_axi_arready;

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
        if (free) begin
            valid_reg <= |s_axi_arvalid;
            if (|s_axi_arvalid) begin
                id_reg <= chosen_id;
                addr_reg <= chosen_addr;
                len_reg <= chosen_len;
            end
        end
        if (rst) begin
            valid_reg <= 1'b0;
            id_reg <= 0;
        end
    end

    assign m_axi_arid = id_reg;
    assign m_axi_araddr = addr_reg;
    assign m_axi_arlen = len_reg;
    assign m_axi_arvalid = valid_reg;
    assign m_axi_rready = 1'b1;

    genvar k;
    generate
        for (k = 0; k < PORTS; k = k + 1) begin : client
            assign s_axi_rvalid[k] = m_axi_rvalid && m_axi_rid == k;
        end
    endgenerate

endmodule

`default_nettype wire
