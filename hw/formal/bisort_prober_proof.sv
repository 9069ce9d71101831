// Proves bisort_prober: each bound gets the position that a plain count over the run gives, once and in order; each partition is requested
// once per stream; no word is left over after a stream's last position; and there is no deadlock.
//
// The run has up to four ascending words of any value, in partitions of two. The proof follows an arbitrary bound (`nth`). The memory
// responds in order, after any time.

`default_nettype none

module bisort_prober_proof #(
    parameter KEY_W = 2,
    parameter W = 1
) (
    input wire             clk,
    input wire             rst,
    input wire [KEY_W-1:0] s_tdata,
    input wire             s_tkeep,
    input wire             s_tlast,
    input wire             s_tvalid,
    input wire             idle_partition,
    input wire             req_free,
    input wire             words_go,
    input wire             m_tready
);

    reset_first reset (.clk(clk), .rst(rst));

    localparam SIZE = 4;
    localparam QUEUE = 4;

    (* anyconst *) reg upper;
    (* anyconst *) reg [SIZE*KEY_W-1:0] run;
    (* anyconst *) reg [2:0] size;
    (* anyconst *) reg [4:0] nth;
    integer i;

    always @* begin
        assume (size >= 3'd1 && size <= SIZE);
        for (i = 1; i < SIZE; i = i + 1) assume (run[(i-1)*KEY_W +: KEY_W] <= run[i*KEY_W +: KEY_W]);
    end

    // The bound's position, and its partition as bisort_partitioner outputs it.
    reg [2:0] position;
    reg [1:0] samples;

    always @* begin
        position = 3'd0;
        samples = 2'd0;
        for (i = 0; i < SIZE; i = i + 1) begin
            if (i < size && {run[i*KEY_W +: KEY_W], 1'b0} < {s_tdata, upper}) begin
                position = position + 3'd1;
                if (i % 2 == 0) samples = samples + 2'd1;
            end
        end
    end
    wire none = samples == 2'd0;
    wire partition = none ? idle_partition : samples == 2'd2;

    wire s_tready, req_tdata, req_tvalid, words_tready, m_tvalid, m_tkeep, m_tlast;
    wire [31:0] m_tdata;
    wire req_tready, words_tvalid, words_tlast;
    wire [W*KEY_W-1:0] words_tdata;
    wire [W-1:0] words_tkeep;

    bisort_prober #(.KEY_W(KEY_W), .W(W), .PART_W(1), .PENDING(2)) unit (
        .clk(clk),
        .rst(rst),
        .upper(upper),
        .step_log2(5'd1),
        .s_axis_tdata(s_tdata),
        .s_axis_tuser({none, partition}),
        .s_axis_tkeep(s_tkeep),
        .s_axis_tlast(s_tlast),
        .s_axis_tvalid(s_tvalid),
        .s_axis_tready(s_tready),
        .m_req_tdata(req_tdata),
        .m_req_tvalid(req_tvalid),
        .m_req_tready(req_tready),
        .s_words_tdata(words_tdata),
        .s_words_tkeep(words_tkeep),
        .s_words_tlast(words_tlast),
        .s_words_tvalid(words_tvalid),
        .s_words_tready(words_tready),
        .m_axis_tdata(m_tdata),
        .m_axis_tkeep(m_tkeep),
        .m_axis_tlast(m_tlast),
        .m_axis_tvalid(m_tvalid),
        .m_axis_tready(m_tready)
    );

    stream_rules #(.WIDTH(KEY_W), .ASSUME(1)) s_rules (
        .clk(clk), .rst(rst), .tdata(s_tdata), .tkeep(s_tkeep), .tlast(s_tlast), .tvalid(s_tvalid), .tready(s_tready));
    stream_rules #(.WIDTH(1), .ASCENDING(0), .ASSUME(1)) idle_rules (
        .clk(clk), .rst(rst), .tdata(idle_partition), .tkeep(1'b1), .tlast(1'b0), .tvalid(s_tvalid), .tready(s_tready));
    stream_rules #(.WIDTH(1), .ASCENDING(0)) req_rules (
        .clk(clk), .rst(rst), .tdata(req_tdata), .tkeep(1'b1), .tlast(1'b0), .tvalid(req_tvalid), .tready(req_tready));
    stream_rules #(.WIDTH(32)) m_rules (
        .clk(clk), .rst(rst), .tdata(m_tdata), .tkeep(m_tkeep), .tlast(m_tlast), .tvalid(m_tvalid), .tready(m_tready));

    // The memory: requested partitions, and how many words of the first have been sent.
    reg [QUEUE-1:0] asked_reg, asked;
    reg [2:0] waiting_reg;
    reg [1:0] sent_reg;
    reg offered_reg;
    wire [2:0] next = {1'b0, asked_reg[0], 1'b0} + {1'b0, sent_reg};
    wire [2:0] part_end = asked_reg[0] ? size : size < 3'd2 ? size : 3'd2;
    wire req_take = req_tvalid && req_tready;
    wire words_take = words_tvalid && words_tready;
    wire done = words_take && words_tlast;

    assign req_tready = req_free && waiting_reg != QUEUE;
    assign words_tvalid = waiting_reg != 0 && (words_go || offered_reg);
    assign words_tlast = next + W >= part_end;

    genvar k;
    generate
        for (k = 0; k < W; k = k + 1) begin : lane
            wire [2:0] at = next + k;
            assign words_tdata[k*KEY_W +: KEY_W] = run[at[1:0]*KEY_W +: KEY_W];
            assign words_tkeep[k] = at < part_end;
        end
    endgenerate

    always @* begin
        asked = done ? asked_reg >> 1 : asked_reg;
        if (req_take) asked[waiting_reg - {2'd0, done}] = req_tdata;
    end

    always @(posedge clk) begin
        waiting_reg <= waiting_reg + {2'd0, req_take} - {2'd0, done};
        asked_reg <= asked;
        if (words_take) sent_reg <= words_tlast ? 2'd0 : sent_reg + W[1:0];
        offered_reg <= words_tvalid && !words_tready;
        if (rst) begin
            waiting_reg <= 3'd0;
            sent_reg <= 2'd0;
            offered_reg <= 1'b0;
        end
    end

    reg [4:0] in_reg, out_reg, in_streams_reg;
    reg [2:0] position_reg;
    reg keep_reg, last_reg, asked_last_reg, asked_any_reg;
    wire take = s_tvalid && s_tready;
    wire give = m_tvalid && m_tready;
    wire here = m_tvalid && out_reg == nth;

    always @(posedge clk) begin
        if (take) in_reg <= in_reg + 5'd1;
        if (take) in_streams_reg <= in_streams_reg + {4'd0, s_tlast};
        if (give) out_reg <= out_reg + 5'd1;
        if (take && in_reg == nth) {position_reg, keep_reg, last_reg} <= {position, s_tkeep, s_tlast};
        if (rst) begin
            in_reg <= 5'd0;
            out_reg <= 5'd0;
            in_streams_reg <= 5'd0;
        end
    end

    // A request belongs to the bound that was accepted last: no further bound is accepted while it waits.
    reg [4:0] taken_stream_reg, asked_stream_reg;
    always @(posedge clk) begin
        if (take) taken_stream_reg <= in_streams_reg;
        if (req_tvalid && req_tready) {asked_any_reg, asked_last_reg, asked_stream_reg} <= {1'b1, req_tdata, taken_stream_reg};
        if (rst) asked_any_reg <= 1'b0;
    end
    wire again = asked_any_reg && asked_stream_reg == taken_stream_reg;

    always @* if (!rst) begin
        none_doubled: assert (!m_tvalid || out_reg < in_reg);
        right_position: assert (!here || !keep_reg || m_tdata == {29'd0, position_reg});
        right_end: assert (!here || {m_tkeep, m_tlast} == {keep_reg, last_reg});
        asked_once: assert (!(req_tvalid && again) || asked_last_reg < req_tdata);
        nothing_left: assert (!(give && m_tlast && in_reg == out_reg + 5'd1) || (waiting_reg == 0 && !req_tvalid));
        far_bound: cover (give && here && m_tlast && m_tdata == 32'd3 && out_reg == 5'd3 && keep_reg);
    end

    wire going = req_free && words_go && m_tready;
    patience #(.MOST(3)) moving (
        .clk(clk), .rst(rst), .waiting(s_tvalid && going && !s_tready && !req_tvalid && !words_take && !m_tvalid));
    patience #(.MOST(8)) giving (.clk(clk), .rst(rst), .waiting(in_reg != out_reg && going && !m_tvalid));

endmodule

`default_nettype wire
