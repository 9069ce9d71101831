// Proves bisort_indexer: the stream passes unchanged; samples are those at multiples of the step, none lost or duplicated, in order; each
// stream's samples end with their own tlast; and there is no deadlock.
//
// The proof follows an arbitrary beat (`nth`) and an arbitrary sample (`sample` of stream `which`). Steps are 2 and 4, `first` is below 8.

`default_nettype none

module bisort_indexer_proof #(
    parameter KEY_W = 2,
    parameter ID_W = 1,
    parameter W = 2
) (
    input wire                      clk,
    input wire                      rst,
    input wire [W*(KEY_W+ID_W)-1:0] s_tdata,
    input wire [W-1:0]              s_tkeep,
    input wire                      s_tlast,
    input wire                      s_tvalid,
    input wire                      m_tready,
    input wire                      i_tready
);

    reset_first reset (.clk(clk), .rst(rst));

    localparam TUPLE_W = KEY_W + ID_W;

    (* anyconst *) reg [4:0] step_log2;
    (* anyconst *) reg [31:0] first;
    (* anyconst *) reg [4:0] nth, sample, which;
    always @* assume ((step_log2 == 5'd1 || step_log2 == 5'd2) && first < 32'd8);

    wire s_tready, m_tvalid, m_tlast, i_tvalid, i_tlast, i_tkeep;
    wire [W*TUPLE_W-1:0] m_tdata;
    wire [W-1:0] m_tkeep;
    wire [KEY_W-1:0] i_tdata;

    bisort_indexer #(.KEY_W(KEY_W), .ID_W(ID_W), .W(W)) unit (
        .clk(clk),
        .rst(rst),
        .step_log2(step_log2),
        .first(first),
        .s_axis_tdata(s_tdata),
        .s_axis_tkeep(s_tkeep),
        .s_axis_tlast(s_tlast),
        .s_axis_tvalid(s_tvalid),
        .s_axis_tready(s_tready),
        .m_axis_tdata(m_tdata),
        .m_axis_tkeep(m_tkeep),
        .m_axis_tlast(m_tlast),
        .m_axis_tvalid(m_tvalid),
        .m_axis_tready(m_tready),
        .m_index_tdata(i_tdata),
        .m_index_tkeep(i_tkeep),
        .m_index_tlast(i_tlast),
        .m_index_tvalid(i_tvalid),
        .m_index_tready(i_tready)
    );

    stream_rules #(.WIDTH(TUPLE_W), .W(W), .ASSUME(1)) s_rules (
        .clk(clk), .rst(rst), .tdata(s_tdata), .tkeep(s_tkeep), .tlast(s_tlast), .tvalid(s_tvalid), .tready(s_tready));
    stream_rules #(.WIDTH(TUPLE_W), .W(W)) m_rules (
        .clk(clk), .rst(rst), .tdata(m_tdata), .tkeep(m_tkeep), .tlast(m_tlast), .tvalid(m_tvalid), .tready(m_tready));
    stream_rules #(.WIDTH(KEY_W)) i_rules (
        .clk(clk), .rst(rst), .tdata(i_tdata), .tkeep(i_tkeep), .tlast(i_tlast), .tvalid(i_tvalid), .tready(i_tready));

    // The expected sample of a beat.
    reg [2:0] place_reg;    // position of the next tuple, modulo 8
    wire [2:0] mask = step_log2 == 5'd1 ? 3'd1 : 3'd3;
    reg [KEY_W-1:0] key;
    reg sampled;
    integer k;

    always @* begin
        key = {KEY_W{1'b0}};
        sampled = 1'b0;
        for (k = 0; k < W; k = k + 1) begin
            if (s_tkeep[k] && ((place_reg + k[2:0]) & mask) == 3'd0) begin
                key = s_tdata[k*TUPLE_W+ID_W +: KEY_W];
                sampled = 1'b1;
            end
        end
    end

    reg [4:0] in_beats_reg, out_beats_reg, in_streams_reg, out_streams_reg, in_samples_reg, out_samples_reg;
    reg [W*TUPLE_W+W:0] beat_reg;
    reg [KEY_W-1:0] key_reg;
    wire take = s_tvalid && s_tready;
    wire give = m_tvalid && m_tready;
    wire show = i_tvalid && i_tready;
    wire watching = in_streams_reg == which;
    wire watched = out_streams_reg == which;
    wire [4:0] shown = out_samples_reg + {4'd0, i_tkeep};

    always @(posedge clk) begin
        if (take) begin
            in_beats_reg <= in_beats_reg + 5'd1;
            in_streams_reg <= in_streams_reg + {4'd0, s_tlast};
            place_reg <= s_tlast ? first[2:0] : place_reg + W[2:0];
            if (watching && sampled) in_samples_reg <= in_samples_reg + 5'd1;
            if (watching && sampled && in_samples_reg == sample) key_reg <= key;
            if (in_beats_reg == nth) beat_reg <= {s_tdata, s_tkeep, s_tlast};
        end
        if (give) out_beats_reg <= out_beats_reg + 5'd1;
        if (show) out_streams_reg <= out_streams_reg + {4'd0, i_tlast};
        if (show && watched) out_samples_reg <= shown;
        if (rst) begin
            in_beats_reg <= 5'd0;
            out_beats_reg <= 5'd0;
            in_streams_reg <= 5'd0;
            out_streams_reg <= 5'd0;
            in_samples_reg <= 5'd0;
            out_samples_reg <= 5'd0;
            place_reg <= first[2:0];
        end
    end

    always @* if (!rst) begin
        beats_doubled: assert (!m_tvalid || out_beats_reg < in_beats_reg);
        beats_changed: assert (!m_tvalid || out_beats_reg != nth || {m_tdata, m_tkeep, m_tlast} == beat_reg);
        samples_doubled: assert (!i_tvalid || !watched || shown <= in_samples_reg);
        samples_lost: assert (!(i_tvalid && i_tlast && watched) || shown == in_samples_reg);
        samples_changed: assert (!(i_tvalid && i_tkeep && watched && out_samples_reg == sample) || i_tdata == key_reg);
        ended: assert (!(i_tvalid && i_tlast) || out_streams_reg < in_streams_reg);
        three_samples: cover (show && i_tlast && watched && which == 5'd1 && shown == 5'd3);
    end

    patience #(.MOST(2)) taking (.clk(clk), .rst(rst), .waiting(s_tvalid && m_tready && i_tready && !s_tready));
    patience #(.MOST(2)) ending (.clk(clk), .rst(rst), .waiting(out_streams_reg < in_streams_reg && i_tready && !i_tvalid));

endmodule

`default_nettype wire
