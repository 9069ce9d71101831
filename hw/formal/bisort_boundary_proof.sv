// Proves bisort_boundary in both modes: each bound is correct, none is lost or duplicated, in order; and there is no deadlock.
//
// The proof follows an arbitrary bound (`nth`) of each stream.

`default_nettype none

module bisort_boundary_proof #(
    parameter KEY_W = 3
) (
    input wire             clk,
    input wire             rst,
    input wire [KEY_W-1:0] low_tdata,
    input wire             low_tkeep,
    input wire             low_tlast,
    input wire             low_tvalid,
    input wire [KEY_W-1:0] high_tdata,
    input wire             high_tkeep,
    input wire             high_tlast,
    input wire             high_tvalid,
    input wire             m_low_tready,
    input wire             m_high_tready
);

    reset_first reset (.clk(clk), .rst(rst));

    (* anyconst *) reg band;
    (* anyconst *) reg [KEY_W-1:0] below, above, least, most;
    (* anyconst *) reg [4:0] nth;
    always @* assume (least <= most);

    wire low_tready, high_tready, m_low_tvalid, m_low_tlast, m_low_tkeep, m_high_tvalid, m_high_tlast, m_high_tkeep;
    wire [KEY_W-1:0] m_low_tdata, m_high_tdata;

    bisort_boundary #(.KEY_W(KEY_W)) unit (
        .clk(clk),
        .rst(rst),
        .band(band),
        .below(below),
        .above(above),
        .least(least),
        .most(most),
        .s_axis_low_tdata(low_tdata),
        .s_axis_low_tkeep(low_tkeep),
        .s_axis_low_tlast(low_tlast),
        .s_axis_low_tvalid(low_tvalid),
        .s_axis_low_tready(low_tready),
        .s_axis_high_tdata(high_tdata),
        .s_axis_high_tkeep(high_tkeep),
        .s_axis_high_tlast(high_tlast),
        .s_axis_high_tvalid(high_tvalid),
        .s_axis_high_tready(high_tready),
        .m_axis_low_tdata(m_low_tdata),
        .m_axis_low_tkeep(m_low_tkeep),
        .m_axis_low_tlast(m_low_tlast),
        .m_axis_low_tvalid(m_low_tvalid),
        .m_axis_low_tready(m_low_tready),
        .m_axis_high_tdata(m_high_tdata),
        .m_axis_high_tkeep(m_high_tkeep),
        .m_axis_high_tlast(m_high_tlast),
        .m_axis_high_tvalid(m_high_tvalid),
        .m_axis_high_tready(m_high_tready)
    );

    stream_rules #(.WIDTH(KEY_W), .ASSUME(1)) low_rules (
        .clk(clk), .rst(rst), .tdata(low_tdata), .tkeep(low_tkeep), .tlast(low_tlast), .tvalid(low_tvalid), .tready(low_tready));
    stream_rules #(.WIDTH(KEY_W), .ASSUME(1)) high_rules (
        .clk(clk), .rst(rst), .tdata(high_tdata), .tkeep(high_tkeep), .tlast(high_tlast), .tvalid(high_tvalid),
        .tready(high_tready));
    stream_rules #(.WIDTH(KEY_W)) m_low_rules (
        .clk(clk), .rst(rst), .tdata(m_low_tdata), .tkeep(m_low_tkeep), .tlast(m_low_tlast), .tvalid(m_low_tvalid),
        .tready(m_low_tready));
    stream_rules #(.WIDTH(KEY_W)) m_high_rules (
        .clk(clk), .rst(rst), .tdata(m_high_tdata), .tkeep(m_high_tkeep), .tlast(m_high_tlast), .tvalid(m_high_tvalid),
        .tready(m_high_tready));

    // The expected bounds of the key at the input, in numbers that cannot overflow.
    wire [KEY_W+1:0] lowest = {2'b0, low_tdata} >= {2'b0, least} + {2'b0, below} ? {2'b0, low_tdata} - {2'b0, below} : {2'b0, least};
    wire [KEY_W+1:0] sum = {2'b0, low_tdata} + {2'b0, above};
    wire [KEY_W+1:0] highest = sum <= {2'b0, most} ? sum : {2'b0, most};
    wire low_take = low_tvalid && low_tready;
    wire high_take = band ? low_take : high_tvalid && high_tready;
    wire [KEY_W+1:0] low_want = {band ? lowest[KEY_W-1:0] : low_tdata, low_tkeep, low_tlast};
    wire [KEY_W+1:0] high_want = band ? {highest[KEY_W-1:0], low_tkeep, low_tlast} : {high_tdata, high_tkeep, high_tlast};

    reg [4:0] low_in_reg, low_out_reg, high_in_reg, high_out_reg;
    reg [KEY_W+1:0] low_want_reg, high_want_reg;

    always @(posedge clk) begin
        if (low_take) low_in_reg <= low_in_reg + 5'd1;
        if (high_take) high_in_reg <= high_in_reg + 5'd1;
        if (low_take && low_in_reg == nth) low_want_reg <= low_want;
        if (high_take && high_in_reg == nth) high_want_reg <= high_want;
        if (m_low_tvalid && m_low_tready) low_out_reg <= low_out_reg + 5'd1;
        if (m_high_tvalid && m_high_tready) high_out_reg <= high_out_reg + 5'd1;
        if (rst) begin
            low_in_reg <= 5'd0;
            high_in_reg <= 5'd0;
            low_out_reg <= 5'd0;
            high_out_reg <= 5'd0;
        end
    end

    // The bound of an empty beat is ignored.
    wire low_same = low_want_reg[1] ? {m_low_tdata, m_low_tkeep, m_low_tlast} == low_want_reg : {m_low_tkeep, m_low_tlast} == low_want_reg[1:0];
    wire high_same = high_want_reg[1] ? {m_high_tdata, m_high_tkeep, m_high_tlast} == high_want_reg : {m_high_tkeep, m_high_tlast} == high_want_reg[1:0];

    always @* if (!rst) begin
        low_doubled: assert (!m_low_tvalid || low_out_reg < low_in_reg);
        high_doubled: assert (!m_high_tvalid || high_out_reg < high_in_reg);
        low_right: assert (!m_low_tvalid || low_out_reg != nth || low_same);
        high_right: assert (!m_high_tvalid || high_out_reg != nth || high_same);
        not_read: assert (!band || !high_tready);
        both_held: cover (band && low_out_reg == 5'd3 && m_low_tvalid && m_low_tdata == least && m_high_tdata == most && least != 0);
    end

    patience #(.MOST(1)) taking (.clk(clk), .rst(rst), .waiting(low_tvalid && m_low_tready && m_high_tready && !low_tready));
    patience #(.MOST(1)) high_taking (.clk(clk), .rst(rst), .waiting(!band && high_tvalid && m_high_tready && !high_tready));
    patience #(.MOST(2)) low_giving (.clk(clk), .rst(rst), .waiting(low_out_reg != low_in_reg && !m_low_tvalid));
    patience #(.MOST(2)) high_giving (.clk(clk), .rst(rst), .waiting(high_out_reg != high_in_reg && !m_high_tvalid));

endmodule

`default_nettype wire
