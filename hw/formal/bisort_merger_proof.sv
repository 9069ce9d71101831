// Proves bisort_merger: merges two ascending streams into one ascending stream with the same tuples, merge after merge, without deadlock.
//
// The proof follows an arbitrary tuple (`watched`) that occurs once, in an arbitrary merge (`which`), from the inputs to the output. Keys
// and ids are narrow, because the unit only compares and moves them.

`default_nettype none

module bisort_merger_proof #(
    parameter KEY_W = 1,
    parameter ID_W = 1,
    parameter W = 2
) (
    input wire                      clk,
    input wire                      rst,
    input wire [W*(KEY_W+ID_W)-1:0] a_tdata,
    input wire [W-1:0]              a_tkeep,
    input wire                      a_tlast,
    input wire                      a_tvalid,
    input wire [W*(KEY_W+ID_W)-1:0] b_tdata,
    input wire [W-1:0]              b_tkeep,
    input wire                      b_tlast,
    input wire                      b_tvalid,
    input wire                      m_tready
);

    reset_first reset (.clk(clk), .rst(rst));

    localparam TUPLE_W = KEY_W + ID_W;

    wire a_tready, b_tready, m_tvalid, m_tlast;
    wire [W*TUPLE_W-1:0] m_tdata;
    wire [W-1:0] m_tkeep;

    bisort_merger #(.KEY_W(KEY_W), .ID_W(ID_W), .W(W)) unit (
        .clk(clk),
        .rst(rst),
        .s_axis_a_tdata(a_tdata),
        .s_axis_a_tkeep(a_tkeep),
        .s_axis_a_tlast(a_tlast),
        .s_axis_a_tvalid(a_tvalid),
        .s_axis_a_tready(a_tready),
        .s_axis_b_tdata(b_tdata),
        .s_axis_b_tkeep(b_tkeep),
        .s_axis_b_tlast(b_tlast),
        .s_axis_b_tvalid(b_tvalid),
        .s_axis_b_tready(b_tready),
        .m_axis_tdata(m_tdata),
        .m_axis_tkeep(m_tkeep),
        .m_axis_tlast(m_tlast),
        .m_axis_tvalid(m_tvalid),
        .m_axis_tready(m_tready)
    );

    stream_rules #(.WIDTH(TUPLE_W), .W(W), .ASSUME(1)) a_rules (
        .clk(clk), .rst(rst), .tdata(a_tdata), .tkeep(a_tkeep), .tlast(a_tlast), .tvalid(a_tvalid), .tready(a_tready));
    stream_rules #(.WIDTH(TUPLE_W), .W(W), .ASSUME(1)) b_rules (
        .clk(clk), .rst(rst), .tdata(b_tdata), .tkeep(b_tkeep), .tlast(b_tlast), .tvalid(b_tvalid), .tready(b_tready));
    stream_rules #(.WIDTH(TUPLE_W), .W(W)) m_rules (
        .clk(clk), .rst(rst), .tdata(m_tdata), .tkeep(m_tkeep), .tlast(m_tlast), .tvalid(m_tvalid), .tready(m_tready));

    (* anyconst *) reg [TUPLE_W-1:0] watched;
    (* anyconst *) reg [1:0] which;

    // Lanes of a beat that contain the tuple.
    function [W-1:0] hits;
        input [W*TUPLE_W-1:0] data;
        input [W-1:0] keep;
        input [TUPLE_W-1:0] wanted;
        integer i;
        for (i = 0; i < W; i = i + 1) hits[i] = keep[i] && data[i*TUPLE_W +: TUPLE_W] == wanted;
    endfunction

    reg [1:0] a_merge_reg, b_merge_reg, m_merge_reg;    // finished merges per stream
    reg in_reg, out_reg;                                // the tuple has entered, has left
    wire a_take = a_tvalid && a_tready;
    wire b_take = b_tvalid && b_tready;
    wire give = m_tvalid && m_tready;
    wire here = m_tvalid && m_merge_reg == which;
    wire [2*W-1:0] in_hits = {
        hits(a_tdata, a_tkeep, watched) & {W{a_take && a_merge_reg == which}},
        hits(b_tdata, b_tkeep, watched) & {W{b_take && b_merge_reg == which}}
    };
    wire [W-1:0] out_hits = hits(m_tdata, m_tkeep, watched) & {W{here}};

    // The tuple occurs once, and there are at most three merges.
    always @* assume ((in_hits & (in_hits - 1'b1)) == 0 && !(in_reg && |in_hits));
    always @* assume (!(a_merge_reg == 2'd3 && a_tvalid) && !(b_merge_reg == 2'd3 && b_tvalid));

    always @(posedge clk) begin
        if (a_take) a_merge_reg <= a_merge_reg + {1'b0, a_tlast};
        if (b_take) b_merge_reg <= b_merge_reg + {1'b0, b_tlast};
        if (give) m_merge_reg <= m_merge_reg + {1'b0, m_tlast};
        if (|in_hits) in_reg <= 1'b1;
        if (give && |out_hits) out_reg <= 1'b1;
        if (rst) begin
            a_merge_reg <= 2'd0;
            b_merge_reg <= 2'd0;
            m_merge_reg <= 2'd0;
            in_reg <= 1'b0;
            out_reg <= 1'b0;
        end
    end

    always @* if (!rst) begin
        none_doubled: assert ((out_hits & (out_hits - 1'b1)) == 0 && !(out_reg && |out_hits));
        none_made: assert (!(|out_hits) || in_reg);
        none_lost: assert (!(here && m_tlast) || (out_reg || |out_hits) == in_reg);
        ended: assert (!(m_tvalid && m_tlast) || (m_merge_reg < a_merge_reg && m_merge_reg < b_merge_reg));
        second_merge: cover (give && m_tlast && m_merge_reg == 2'd1 && which == 2'd1 && out_reg);
    end

    // If all inputs are offered and the output is ready, data move; and a completely received merge is output.
    // With several lanes, two new heads are loaded one after the other.
    patience #(.MOST(W > 1 ? 5 : 4)) moving (
        .clk(clk), .rst(rst), .waiting(a_tvalid && b_tvalid && m_tready && !a_tready && !b_tready && !m_tvalid));
    patience #(.MOST((W > 1 ? 5 : 4) + $clog2(W))) ending (
        .clk(clk), .rst(rst),
        .waiting(m_merge_reg < a_merge_reg && m_merge_reg < b_merge_reg && !m_tvalid));

endmodule

`default_nettype wire
