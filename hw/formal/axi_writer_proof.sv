// Proves axi_writer: every element of a transfer is written once, to its place, and nothing else is; bursts are announced before
// their data and are as long as announced; a transfer has ended when all its bursts are answered; and there is no deadlock.
//
// An element's value is its number in the transfer. Beats have two elements of 32 bits, bursts two beats.

`default_nettype none

module axi_writer_proof #(
    parameter W = 1
) (
    input wire         clk,
    input wire         rst,
    input wire [5:0]   first,
    input wire         go,
    input wire [W-1:0] s_tkeep,
    input wire         s_tlast,
    input wire         s_tvalid,
    input wire         aw_free,
    input wire         w_free,
    input wire         b_go
);

    reset_first reset (.clk(clk), .rst(rst));

    wire cmd_ready, s_tready, awvalid, awlen, wlast, wvalid, sum_first, busy;
    wire [W*32-1:0] s_tdata;
    wire [4:0] awaddr;
    wire [63:0] wdata;
    wire [1:0] wstrb;
    wire bvalid;

    axi_writer #(.ELEM_W(32), .W(W), .DATA_W(64), .ADDR_W(8), .BURST(2), .FIFO_BEATS(4)) unit (
        .clk(clk),
        .rst(rst),
        .cmd_addr({first, 2'b00}),
        .cmd_valid(go),
        .cmd_ready(cmd_ready),
        .s_axis_tdata(s_tdata),
        .s_axis_tkeep(s_tkeep),
        .s_axis_tlast(s_tlast),
        .s_axis_tvalid(s_tvalid),
        .s_axis_tready(s_tready),
        .m_axi_awaddr(awaddr),
        .m_axi_awlen(awlen),
        .m_axi_awvalid(awvalid),
        .m_axi_awready(aw_free),
        .m_axi_wdata(wdata),
        .m_axi_wstrb(wstrb),
        .m_axi_wlast(wlast),
        .m_axi_wvalid(wvalid),
        .m_axi_wready(w_free),
        .m_axi_bvalid(bvalid),
        .sum_first(sum_first),
        .busy(busy)
    );

    wire accept = go && cmd_ready;
    wire take = s_tvalid && s_tready;
    wire announce = awvalid && aw_free;
    wire send = wvalid && w_free;

    // The transfer at work: its place, the elements that were taken and written. Streams begin after their command.
    reg [5:0] first_reg, taken_reg, written_reg;
    reg active_reg;
    wire [5:0] kept = W == 1 ? {5'd0, s_tkeep[0]} : {5'd0, s_tkeep[0]} + {5'd0, s_tkeep[W-1]};

    always @* if (!active_reg) assume (!s_tvalid);

    genvar k;
    generate
        for (k = 0; k < W; k = k + 1) begin : lane
            wire [5:0] number = taken_reg + k;
            assign s_tdata[k*32 +: 32] = {26'd0, number};
        end
    endgenerate

    stream_rules #(.WIDTH(1), .W(W), .ASCENDING(0), .ASSUME(1)) s_rules (
        .clk(clk), .rst(rst), .tdata({W{1'b0}}), .tkeep(s_tkeep), .tlast(s_tlast), .tvalid(s_tvalid), .tready(s_tready));
    stream_rules #(.WIDTH(6), .ASCENDING(0)) aw_rules (
        .clk(clk), .rst(rst), .tdata({awaddr, awlen}), .tkeep(1'b1), .tlast(1'b0), .tvalid(awvalid), .tready(aw_free));
    stream_rules #(.WIDTH(67), .ASCENDING(0)) w_rules (
        .clk(clk), .rst(rst), .tdata({wdata, wstrb, wlast}), .tkeep(1'b1), .tlast(1'b0), .tvalid(wvalid), .tready(w_free));

    // Bursts that were announced and not sent, and the beats of the oldest that were.
    wire [4:0] at_addr;
    wire at_len;
    wire [3:0] bursts;
    reg beat_reg;
    reg [3:0] open_reg;      // bursts that were sent and not answered
    wire [4:0] beat = at_addr + {4'd0, beat_reg};

    waiting_line #(.WIDTH(6)) under_way (
        .clk(clk), .rst(rst), .item({awaddr, awlen}), .push(announce), .pop(send && wlast), .head({at_addr, at_len}), .count(bursts));

    assign bvalid = open_reg != 0 && b_go;

    wire [5:0] low = {beat, 1'b0} - first_reg, high = {beat, 1'b1} - first_reg;   // numbers of the beat's elements
    wire [5:0] more = {5'd0, wstrb[0]} + {5'd0, wstrb[1]};

    always @(posedge clk) begin
        if (take) taken_reg <= taken_reg + kept;
        if (take && s_tlast) active_reg <= 1'b0;
        if (send) begin
            beat_reg <= !wlast;
            written_reg <= written_reg + more;
        end
        open_reg <= open_reg + {3'd0, send && wlast} - {3'd0, bvalid};
        if (accept) begin
            first_reg <= first;
            taken_reg <= 6'd0;
            written_reg <= 6'd0;
            active_reg <= 1'b1;
        end
        if (rst) begin
            beat_reg <= 1'b0;
            open_reg <= 4'd0;
            active_reg <= 1'b0;
            taken_reg <= 6'd0;
            written_reg <= 6'd0;
        end
    end

    always @* if (!rst) begin
        announced: assert (!wvalid || bursts != 0);
        right_low: assert (!wvalid || !wstrb[0] || (low == written_reg && wdata[31:0] == {26'd0, low}));
        right_high: assert (!wvalid || !wstrb[1]
            || (high == written_reg + {5'd0, wstrb[0]} && wdata[63:32] == {26'd0, high}));
        some_element: assert (!wvalid || wstrb != 0);
        not_more: assert (!wvalid || written_reg + more <= taken_reg);
        right_first: assert (!wvalid || sum_first == (written_reg == 0));
        all_written: assert (busy || active_reg || (written_reg == taken_reg && bursts == 0 && open_reg == 0));
        busy_while_active: assert (busy || !active_reg);
        has_shape: assert (!awvalid || !(awaddr[0] && awlen));
        is_sorted: assert (!wvalid || wlast == (beat_reg == at_len));
        long_transfer: cover (!busy && taken_reg >= 6'd6 && first_reg[0]);
    end

    wire stuck = busy && !awvalid && !wvalid && open_reg == 0 && (!active_reg || (s_tvalid && !s_tready));
    patience #(.MOST(4)) moving (.clk(clk), .rst(rst), .waiting(stuck));

endmodule

`default_nettype wire
