// Proves axi_write_arbiter: each writer's burst is announced once and unchanged, with its number as id; data follow in the order of the
// announcements, a burst's beats together; answers go to the writer that the id names; no writer waits for more than one turn of each other
// one; `hold` stops new bursts, and `idle` counts those under way.

`default_nettype none

module axi_write_arbiter_proof #(
    parameter PORTS = 2
) (
    input wire                clk,
    input wire                rst,
    input wire                hold,
    input wire [PORTS*2-1:0]  s_awaddr,
    input wire [PORTS-1:0]    s_awlen,
    input wire [PORTS-1:0]    s_awvalid,
    input wire [PORTS*32-1:0] s_wdata,
    input wire [PORTS-1:0]    s_wlast,
    input wire [PORTS-1:0]    s_wvalid,
    input wire                m_awready,
    input wire                m_wready,
    input wire                m_bid,
    input wire                m_bvalid
);

    reset_first reset (.clk(clk), .rst(rst));

    wire idle, m_awid, m_awvalid, m_awlen, m_wlast, m_wvalid, m_wid, m_bready, m_wstrb;
    wire [1:0] m_awaddr;
    wire [31:0] m_wdata;
    wire [PORTS-1:0] s_awready, s_wready, s_bvalid;

    axi_write_arbiter #(.PORTS(PORTS), .DATA_W(32), .AXI_ID_W(1), .BEAT_W(2), .LEN_W(1), .ORDER(2), .OPEN(31)) unit (
        .clk(clk),
        .rst(rst),
        .hold(hold),
        .idle(idle),
        .s_axi_awaddr(s_awaddr),
        .s_axi_awlen(s_awlen),
        .s_axi_awvalid(s_awvalid),
        .s_axi_awready(s_awready),
        .s_axi_wdata(s_wdata),
        .s_axi_wstrb({PORTS{1'b1}}),
        .s_axi_wlast(s_wlast),
        .s_axi_wvalid(s_wvalid),
        .s_axi_wready(s_wready),
        .s_axi_bvalid(s_bvalid),
        .m_axi_awid(m_awid),
        .m_axi_awaddr(m_awaddr),
        .m_axi_awlen(m_awlen),
        .m_axi_awvalid(m_awvalid),
        .m_axi_awready(m_awready),
        .m_axi_wdata(m_wdata),
        .m_axi_wstrb(m_wstrb),
        .m_axi_wlast(m_wlast),
        .m_axi_wvalid(m_wvalid),
        .m_axi_wready(m_wready),
        .m_axi_wid(m_wid),
        .m_axi_bid(m_bid),
        .m_axi_bvalid(m_bvalid),
        .m_axi_bready(m_bready)
    );

    stream_rules #(.WIDTH(4), .ASCENDING(0)) aw_rules (
        .clk(clk), .rst(rst), .tdata({m_awid, m_awaddr, m_awlen}), .tkeep(1'b1), .tlast(1'b0), .tvalid(m_awvalid), .tready(m_awready));
    stream_rules #(.WIDTH(34), .ASCENDING(0)) w_rules (
        .clk(clk), .rst(rst), .tdata({m_wid, m_wdata, m_wlast}), .tkeep(1'b1), .tlast(1'b0), .tvalid(m_wvalid), .tready(m_wready));

    (* anyconst *) reg one;
    reg [3:0] taken_reg, wanted;
    reg pending_reg;
    reg [4:0] begun_reg, sent_reg, answered_reg;     // bursts that were taken from writers, sent in full, answered
    reg [2:0] others_reg;
    wire [PORTS-1:0] took = s_awvalid & s_awready;
    wire [PORTS-1:0] moved = s_wvalid & s_wready;
    wire head;
    wire [3:0] waiting;
    integer i;

    always @* begin
        wanted = 4'd0;
        for (i = 0; i < PORTS; i = i + 1) if (took[i]) wanted = {i[0], s_awaddr[i*2 +: 2], s_awlen[i]};
        // The memory answers what was sent.
        assume (!m_bvalid || answered_reg < sent_reg);
    end

    waiting_line #(.WIDTH(1)) order (
        .clk(clk), .rst(rst), .item(wanted[3]), .push(took != 0), .pop(m_wvalid && m_wready && m_wlast), .head(head), .count(waiting));

    wire [PORTS-1:0] answered, ordered, same;
    genvar k;
    generate
        for (k = 0; k < PORTS; k = k + 1) begin : writer
            // Bursts that this writer has announced and not sent: it offers their data, and no other.
            reg [3:0] announced_reg;
            always @(posedge clk) announced_reg <= rst ? 4'd0 : announced_reg + {3'd0, took[k]} - {3'd0, moved[k] && s_wlast[k]};
            always @* assume (!s_wvalid[k] || announced_reg != 0);

            stream_rules #(.WIDTH(3), .ASCENDING(0), .ASSUME(1)) aw_given (
                .clk(clk), .rst(rst), .tdata({s_awaddr[k*2 +: 2], s_awlen[k]}), .tkeep(1'b1), .tlast(1'b0),
                .tvalid(s_awvalid[k]), .tready(s_awready[k]));
            stream_rules #(.WIDTH(33), .ASCENDING(0), .ASSUME(1)) w_given (
                .clk(clk), .rst(rst), .tdata({s_wdata[k*32 +: 32], s_wlast[k]}), .tkeep(1'b1), .tlast(1'b0),
                .tvalid(s_wvalid[k]), .tready(s_wready[k]));
            assign answered[k] = s_bvalid[k] == (m_bvalid && m_bid == k);
            assign ordered[k] = !moved[k] || (waiting != 0 && head == k && m_wvalid && m_wready);
            assign same[k] = !(m_wvalid && head == k) || {m_wdata, m_wlast} == {s_wdata[k*32 +: 32], s_wlast[k]};
        end
    endgenerate

    always @(posedge clk) begin
        if (m_awready) pending_reg <= 1'b0;
        if (took != 0) begin
            pending_reg <= 1'b1;
            taken_reg <= wanted;
        end
        begun_reg <= begun_reg + {4'd0, took != 0};
        sent_reg <= sent_reg + {4'd0, m_wvalid && m_wready && m_wlast};
        answered_reg <= answered_reg + {4'd0, m_bvalid};
        if (!s_awvalid[one] || took[one]) others_reg <= 3'd0;
        else if (took != 0) others_reg <= others_reg + 3'd1;
        if (rst) begin
            pending_reg <= 1'b0;
            begun_reg <= 5'd0;
            sent_reg <= 5'd0;
            answered_reg <= 5'd0;
            others_reg <= 3'd0;
        end
    end

    always @* if (!rst) begin
        right_writer: assert (&answered);
        in_order: assert (&ordered);
        right_data: assert (&same);
        one_at_a_time: assert ((took & (took - 1'b1)) == 0);
        no_other: assert (m_awvalid == pending_reg);
        unchanged: assert (!m_awvalid || {m_awid, m_awaddr, m_awlen} == taken_reg);
        announced: assert (!m_wvalid || (waiting != 0 && m_wid == head && m_wstrb));
        held: assert (!hold || took == 0);
        right_idle: assert (idle == (begun_reg == answered_reg));
        always_ready: assert (m_bready);
        goes_on: assert (others_reg < PORTS);
        both_sent: cover (sent_reg == 5'd3 && answered_reg == 5'd2 && m_wvalid && !m_wlast);
    end

    wire offered = waiting != 0 && s_wvalid[head];
    patience #(.MOST(2)) sending (.clk(clk), .rst(rst), .waiting(offered && !m_wvalid));
    patience #(.MOST(3)) moving (
        .clk(clk), .rst(rst), .waiting(s_awvalid != 0 && took == 0 && m_awready && !hold && waiting < 4'd2));

endmodule

`default_nettype wire
