// Proves axi_read_arbiter: each reader's request reaches the port once and unchanged, with its number as id; data go to the reader that
// the id names; no reader waits for more than one turn of each other one; `hold` stops new bursts, and `idle` counts those under way.

`default_nettype none

module axi_read_arbiter_proof #(
    parameter PORTS = 3
) (
    input wire               clk,
    input wire               rst,
    input wire               hold,
    input wire [PORTS*2-1:0] s_araddr,
    input wire [PORTS-1:0]   s_arlen,
    input wire [PORTS-1:0]   s_arvalid,
    input wire               m_arready,
    input wire [1:0]         m_rid,
    input wire               m_rlast,
    input wire               m_rvalid
);

    reset_first reset (.clk(clk), .rst(rst));

    wire idle, m_arvalid, m_arlen, m_rready;
    wire [1:0] m_arid, m_araddr;
    wire [PORTS-1:0] s_arready, s_rvalid;

    axi_read_arbiter #(.PORTS(PORTS), .AXI_ID_W(2), .BEAT_W(2), .LEN_W(1), .OPEN(31)) unit (
        .clk(clk),
        .rst(rst),
        .hold(hold),
        .idle(idle),
        .s_axi_araddr(s_araddr),
        .s_axi_arlen(s_arlen),
        .s_axi_arvalid(s_arvalid),
        .s_axi_arready(s_arready),
        .s_axi_rvalid(s_rvalid),
        .m_axi_arid(m_arid),
        .m_axi_araddr(m_araddr),
        .m_axi_arlen(m_arlen),
        .m_axi_arvalid(m_arvalid),
        .m_axi_arready(m_arready),
        .m_axi_rid(m_rid),
        .m_axi_rlast(m_rlast),
        .m_axi_rvalid(m_rvalid),
        .m_axi_rready(m_rready)
    );

    stream_rules #(.WIDTH(5), .ASCENDING(0)) m_rules (
        .clk(clk), .rst(rst), .tdata({m_arid, m_araddr, m_arlen}), .tkeep(1'b1), .tlast(1'b0), .tvalid(m_arvalid), .tready(m_arready));

    // What was taken from a reader and has not left, and the bursts under way at the memory.
    (* anyconst *) reg [1:0] one;
    reg [4:0] taken_reg, wanted;
    reg pending_reg;
    reg [4:0] open_reg;
    reg [2:0] others_reg;     // turns of others while reader `one` waits
    wire [PORTS-1:0] took = s_arvalid & s_arready;
    integer i;

    always @* begin
        assume (one < PORTS);
        wanted = 5'd0;
        for (i = 0; i < PORTS; i = i + 1) if (took[i]) wanted = {i[1:0], s_araddr[i*2 +: 2], s_arlen[i]};
        // The memory answers what it was asked.
        assume (!m_rvalid || !m_rlast || open_reg != 0);
        assume (m_rid < PORTS);
    end

    wire [PORTS-1:0] rightly;
    genvar k;
    generate
        for (k = 0; k < PORTS; k = k + 1) begin : reader
            stream_rules #(.WIDTH(3), .ASCENDING(0), .ASSUME(1)) s_rules (
                .clk(clk), .rst(rst), .tdata({s_araddr[k*2 +: 2], s_arlen[k]}), .tkeep(1'b1), .tlast(1'b0),
                .tvalid(s_arvalid[k]), .tready(s_arready[k]));
            assign rightly[k] = s_rvalid[k] == (m_rvalid && m_rid == k);
        end
    endgenerate

    always @(posedge clk) begin
        if (m_arready) pending_reg <= 1'b0;
        if (took != 0) begin
            pending_reg <= 1'b1;
            taken_reg <= wanted;
        end
        open_reg <= open_reg + {4'd0, m_arvalid && m_arready} - {4'd0, m_rvalid && m_rlast};
        if (!s_arvalid[one] || took[one]) others_reg <= 3'd0;
        else if (took != 0) others_reg <= others_reg + 3'd1;
        if (rst) begin
            pending_reg <= 1'b0;
            open_reg <= 5'd0;
            others_reg <= 3'd0;
        end
    end

    always @* if (!rst) begin
        right_reader: assert (&rightly);
        one_at_a_time: assert ((took & (took - 1'b1)) == 0);
        no_other: assert (m_arvalid == pending_reg);
        unchanged: assert (!m_arvalid || {m_arid, m_araddr, m_arlen} == taken_reg);
        held: assert (!hold || took == 0);
        right_idle: assert (idle == (open_reg == 0 && !pending_reg));
        always_ready: assert (m_rready);
        goes_on: assert (others_reg < PORTS);
        all_served: cover (took == 3'b100 && others_reg == 0 && open_reg == 5'd3 && one == 2'd2);
    end

    patience #(.MOST(1)) moving (.clk(clk), .rst(rst), .waiting(s_arvalid != 0 && took == 0 && m_arready && !hold));

endmodule

`default_nettype wire
