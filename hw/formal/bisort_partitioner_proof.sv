// Proves bisort_partitioner: each bound is output once, in order, with the partition that a plain count over the samples gives; loading or
// dropping an index does not affect bounds in flight; and there is no deadlock.
//
// The proof follows an arbitrary bound (`nth`). The index has up to four samples, and may be replaced and dropped at any time.

`default_nettype none

module bisort_partitioner_proof #(
    parameter KEY_W = 2,
    parameter W = 2
) (
    input wire               clk,
    input wire               rst,
    input wire               drop,
    input wire [W*KEY_W-1:0] index_tdata,
    input wire [W-1:0]       index_tkeep,
    input wire               index_tlast,
    input wire               index_tvalid,
    input wire [KEY_W-1:0]   s_tdata,
    input wire               s_tkeep,
    input wire               s_tlast,
    input wire               upper,
    input wire               s_tvalid,
    input wire               m_tready
);

    reset_first reset (.clk(clk), .rst(rst));

    localparam DEPTH = 4;
    localparam LEVELS = 2;

    (* anyconst *) reg [4:0] nth;

    wire index_tready, s_tready, m_tvalid, m_tkeep, m_tlast, m_upper;
    wire [KEY_W-1:0] m_tdata;
    wire [LEVELS:0] m_tuser;

    bisort_partitioner #(.KEY_W(KEY_W), .W(W), .INDEX_DEPTH(DEPTH)) unit (
        .clk(clk),
        .rst(rst),
        .upper(upper),
        .drop(drop),
        .s_index_tdata(index_tdata),
        .s_index_tkeep(index_tkeep),
        .s_index_tlast(index_tlast),
        .s_index_tvalid(index_tvalid),
        .s_index_tready(index_tready),
        .s_axis_tdata(s_tdata),
        .s_axis_tkeep(s_tkeep),
        .s_axis_tlast(s_tlast),
        .s_axis_tvalid(s_tvalid),
        .s_axis_tready(s_tready),
        .m_axis_tdata(m_tdata),
        .m_axis_tuser(m_tuser),
        .m_axis_tkeep(m_tkeep),
        .m_axis_tlast(m_tlast),
        .m_axis_upper(m_upper),
        .m_axis_tvalid(m_tvalid),
        .m_axis_tready(m_tready)
    );

    stream_rules #(.WIDTH(KEY_W), .W(W), .ASSUME(1)) index_rules (
        .clk(clk), .rst(rst), .tdata(index_tdata), .tkeep(index_tkeep), .tlast(index_tlast), .tvalid(index_tvalid),
        .tready(index_tready));
    stream_rules #(.WIDTH(KEY_W), .ASSUME(1)) s_rules (
        .clk(clk), .rst(rst), .tdata(s_tdata), .tkeep(s_tkeep), .tlast(s_tlast), .tvalid(s_tvalid), .tready(s_tready));
    stream_rules #(.WIDTH(KEY_W)) m_rules (
        .clk(clk), .rst(rst), .tdata(m_tdata), .tkeep(m_tkeep), .tlast(m_tlast), .tvalid(m_tvalid), .tready(m_tready));
    stream_rules #(.WIDTH(LEVELS + 1), .ASCENDING(0)) user_rules (
        .clk(clk), .rst(rst), .tdata(m_tuser), .tkeep(1'b1), .tlast(m_tlast), .tvalid(m_tvalid), .tready(m_tready));

    // The index as received, and how many of its samples precede the bound at the input.
    reg [DEPTH*KEY_W-1:0] index_reg;
    reg [2:0] samples_reg, before;
    reg begun_reg, loaded_reg;
    wire load = index_tvalid && index_tready;
    wire [2:0] place = begun_reg ? samples_reg : 3'd0;
    reg [2:0] kept;
    integer i;

    always @* begin
        kept = 3'd0;
        before = 3'd0;
        for (i = 0; i < W; i = i + 1) kept = kept + {2'd0, index_tkeep[i]};
        for (i = 0; i < DEPTH; i = i + 1) begin
            if (i < samples_reg && {index_reg[i*KEY_W +: KEY_W], 1'b0} < {s_tdata, upper}) before = before + 3'd1;
        end
    end
    // No more samples than fit.
    always @* assume (!index_tvalid || place + kept < DEPTH || (index_tlast && place + kept == DEPTH));

    always @(posedge clk) begin
        if (load) begin
            for (i = 0; i < W; i = i + 1) if (index_tkeep[i]) index_reg[(place+i)*KEY_W +: KEY_W] <= index_tdata[i*KEY_W +: KEY_W];
            samples_reg <= place + kept;
            begun_reg <= !index_tlast;
            loaded_reg <= index_tlast;
        end
        if (drop) loaded_reg <= 1'b0;
        if (rst) begin
            begun_reg <= 1'b0;
            loaded_reg <= 1'b0;
        end
    end

    reg [4:0] in_reg, out_reg;
    reg [KEY_W-1:0] bound_reg;
    reg [2:0] before_reg;
    reg keep_reg, last_reg, upper_reg;
    wire take = s_tvalid && s_tready;
    wire give = m_tvalid && m_tready;
    wire [LEVELS-1:0] partition = before_reg[LEVELS-1:0] - 1'b1;

    always @(posedge clk) begin
        if (take) in_reg <= in_reg + 5'd1;
        if (give) out_reg <= out_reg + 5'd1;
        if (take && in_reg == nth) {bound_reg, before_reg, keep_reg, last_reg, upper_reg} <= {s_tdata, before, s_tkeep, s_tlast, upper};
        if (rst) in_reg <= 5'd0;
        if (rst) out_reg <= 5'd0;
    end

    wire here = m_tvalid && out_reg == nth;
    always @* if (!rst) begin
        none_doubled: assert (!m_tvalid || out_reg < in_reg);
        same_bound: assert (!here || ({m_tkeep, m_tlast, m_upper} == {keep_reg, last_reg, upper_reg} && (!keep_reg || m_tdata == bound_reg)));
        none_before: assert (!here || !keep_reg || m_tuser[LEVELS] == (before_reg == 0));
        right_place: assert (!here || !keep_reg || before_reg == 0 || m_tuser[LEVELS-1:0] == partition);
        only_loaded: assert (!take || loaded_reg);
        still_there: assert (!load || in_reg == out_reg);
        last_partition: cover (give && here && keep_reg && before_reg == DEPTH && out_reg == 5'd2);
    end

    patience #(.MOST(1)) taking (
        .clk(clk), .rst(rst), .waiting(s_tvalid && loaded_reg && !drop && m_tready && !s_tready && !m_tvalid && in_reg == out_reg));
    patience #(.MOST(2 * LEVELS + 3)) giving (.clk(clk), .rst(rst), .waiting(in_reg != out_reg && !m_tvalid));
    patience #(.MOST(1)) loading (.clk(clk), .rst(rst), .waiting(index_tvalid && !index_tready && !s_tvalid && in_reg == out_reg));

endmodule

`default_nettype wire
