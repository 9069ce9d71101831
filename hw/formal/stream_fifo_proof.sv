// Proves stream_fifo: words are output as they were input, none lost or duplicated, in order; `count` is the number inside; no deadlock.
//
// The proof follows an arbitrary word (`nth`) from the input to the output. Bound: the number of cycles of the proof.

`default_nettype none

module stream_fifo_proof #(
    parameter WIDTH = 2,
    parameter DEPTH = 4
) (
    input wire             clk,
    input wire             rst,
    input wire [WIDTH-1:0] s_tdata,
    input wire             s_tvalid,
    input wire             m_tready
);

    reset_first reset (.clk(clk), .rst(rst));

    wire s_tready, m_tvalid;
    wire [WIDTH-1:0] m_tdata;
    wire [$clog2(DEPTH):0] count;

    stream_fifo #(.WIDTH(WIDTH), .DEPTH(DEPTH)) unit (
        .clk(clk),
        .rst(rst),
        .s_axis_tdata(s_tdata),
        .s_axis_tvalid(s_tvalid),
        .s_axis_tready(s_tready),
        .m_axis_tdata(m_tdata),
        .m_axis_tvalid(m_tvalid),
        .m_axis_tready(m_tready),
        .count(count)
    );

    stream_rules #(.WIDTH(WIDTH), .ASCENDING(0), .ASSUME(1)) s_rules (
        .clk(clk), .rst(rst), .tdata(s_tdata), .tkeep(1'b1), .tlast(1'b0), .tvalid(s_tvalid), .tready(s_tready));
    stream_rules #(.WIDTH(WIDTH), .ASCENDING(0)) m_rules (
        .clk(clk), .rst(rst), .tdata(m_tdata), .tkeep(1'b1), .tlast(1'b0), .tvalid(m_tvalid), .tready(m_tready));

    (* anyconst *) reg [4:0] nth;
    reg [4:0] in_reg, out_reg;
    reg [WIDTH-1:0] word_reg;
    wire take = s_tvalid && s_tready;
    wire give = m_tvalid && m_tready;

    always @(posedge clk) begin
        if (take) in_reg <= in_reg + 5'd1;
        if (take && in_reg == nth) word_reg <= s_tdata;
        if (give) out_reg <= out_reg + 5'd1;
        if (rst) in_reg <= 5'd0;
        if (rst) out_reg <= 5'd0;
    end

    always @* if (!rst) begin
        none_doubled: assert (!m_tvalid || out_reg < in_reg);
        none_changed: assert (!m_tvalid || out_reg != nth || m_tdata == word_reg);
        counted: assert ({{(4-$clog2(DEPTH)){1'b0}}, count} == in_reg - out_reg);
        was_full: cover (count == DEPTH + 1 && out_reg == 5'd2);
    end

    patience #(.MOST(2)) given (.clk(clk), .rst(rst), .waiting(in_reg != out_reg && !m_tvalid));
    patience #(.MOST(1)) taken (.clk(clk), .rst(rst), .waiting(s_tvalid && !s_tready && m_tready));

endmodule

`default_nettype wire
