// Proves axi_reader: every transfer's elements come out once, in order and moved to lane 0; bursts ask for exactly the beats of the
// transfers and stay inside their page; nothing overflows; the checksum's marks are right; and there is no deadlock.
//
// An element's value is its place in memory, so a wrong place shows as a wrong value. The memory answers in order, after any time.

`default_nettype none

module axi_reader_proof #(
    parameter W = 1,
    parameter QUEUE = 1
) (
    input wire       clk,
    input wire       rst,
    input wire [5:0] first,
    input wire [5:0] last,
    input wire       empty,
    input wire       go,
    input wire       m_tready,
    input wire       ar_free,
    input wire       r_go
);

    reset_first reset (.clk(clk), .rst(rst));

    // Beats of two elements of 32 bits, bursts of two beats, pages of a burst, a FIFO of four beats.
    localparam ADDR_W = 8;

    wire cmd_ready, m_tlast, m_tvalid, arvalid, arlen, sum_first, busy;
    wire [W*32-1:0] m_tdata;
    wire [W-1:0] m_tkeep;
    wire [4:0] araddr;
    wire [1:0] sum_keep;
    wire [63:0] rdata;
    wire rlast, rvalid;

    always @* assume (first <= last);

    axi_reader #(
        .ELEM_W(32), .W(W), .DATA_W(64), .ADDR_W(ADDR_W), .BURST(2), .FIFO_BEATS(4), .QUEUE(QUEUE), .BURSTS(4)
    ) unit (
        .clk(clk),
        .rst(rst),
        .cmd_addr({first, 2'b00}),
        .cmd_last({last, 2'b00}),
        .cmd_empty(empty),
        .cmd_valid(go),
        .cmd_ready(cmd_ready),
        .m_axis_tdata(m_tdata),
        .m_axis_tkeep(m_tkeep),
        .m_axis_tlast(m_tlast),
        .m_axis_tvalid(m_tvalid),
        .m_axis_tready(m_tready),
        .m_axi_araddr(araddr),
        .m_axi_arlen(arlen),
        .m_axi_arvalid(arvalid),
        .m_axi_arready(ar_free),
        .m_axi_rdata(rdata),
        .m_axi_rlast(rlast),
        .m_axi_rvalid(rvalid),
        .sum_keep(sum_keep),
        .sum_first(sum_first),
        .busy(busy)
    );

    stream_rules #(.WIDTH(32), .W(W)) m_rules (
        .clk(clk), .rst(rst), .tdata(m_tdata), .tkeep(m_tkeep), .tlast(m_tlast), .tvalid(m_tvalid), .tready(m_tready));
    stream_rules #(.WIDTH(6), .ASCENDING(0)) ar_rules (
        .clk(clk), .rst(rst), .tdata({araddr, arlen}), .tkeep(1'b1), .tlast(1'b0), .tvalid(arvalid), .tready(ar_free));

    // The memory: bursts under way, and the beats of the oldest that have come.
    wire [4:0] at_addr;
    wire at_len;
    wire [3:0] bursts;
    reg beat_reg;
    wire [4:0] beat = at_addr + {4'd0, beat_reg};
    wire ask = arvalid && ar_free;

    waiting_line #(.WIDTH(6)) under_way (
        .clk(clk), .rst(rst), .item({araddr, arlen}), .push(ask), .pop(rvalid && rlast), .head({at_addr, at_len}), .count(bursts));

    assign rvalid = bursts != 0 && r_go;
    assign rlast = beat_reg == at_len;
    assign rdata = {26'd0, beat, 1'b1, 26'd0, beat, 1'b0};

    always @(posedge clk) begin
        if (rvalid) beat_reg <= !rlast;
        if (rst) beat_reg <= 1'b0;
    end

    // Transfers whose elements have not all come out; transfers that are asked for, without the empty ones.
    wire [5:0] out_first, out_last, ask_first, ask_last, come_first, come_last;
    wire out_empty;
    wire [3:0] transfers, asked_for, coming;
    wire accept = go && cmd_ready;
    wire give = m_tvalid && m_tready;
    reg [5:0] next_reg;      // the transfer's next element, if it is not the first
    reg begun_reg;
    reg [4:0] ask_reg;       // the next beat to ask for, likewise
    reg asked_reg, come_reg;
    wire [5:0] next = begun_reg ? next_reg : out_first;
    wire [5:0] left = out_last - next;
    wire [4:0] ask_next = asked_reg ? ask_reg : ask_first[5:1];
    wire ask_ends = ask_next + {4'd0, arlen} == ask_last[5:1];
    wire come_ends = beat == come_last[5:1];

    waiting_line #(.WIDTH(13)) outgoing (
        .clk(clk), .rst(rst), .item({empty, last, first}), .push(accept), .pop(give && m_tlast),
        .head({out_empty, out_last, out_first}), .count(transfers));
    waiting_line #(.WIDTH(12)) requested (
        .clk(clk), .rst(rst), .item({last, first}), .push(accept && !empty), .pop(ask && ask_ends),
        .head({ask_last, ask_first}), .count(asked_for));
    waiting_line #(.WIDTH(12)) incoming (
        .clk(clk), .rst(rst), .item({last, first}), .push(accept && !empty), .pop(rvalid && come_ends),
        .head({come_last, come_first}), .count(coming));

    always @(posedge clk) begin
        if (give) begin
            next_reg <= next + W[5:0];
            begun_reg <= !m_tlast;
        end
        if (ask) begin
            ask_reg <= ask_next + {4'd0, arlen} + 5'd1;
            asked_reg <= !ask_ends;
        end
        if (rvalid) come_reg <= !come_ends;
        if (rst) begin
            begun_reg <= 1'b0;
            asked_reg <= 1'b0;
            come_reg <= 1'b0;
        end
    end

    wire [W-1:0] right_value, right_lane;
    genvar k;
    generate
        for (k = 0; k < W; k = k + 1) begin : lane
            wire [5:0] place = next + k;
            assign right_value[k] = !m_tkeep[k] || m_tdata[k*32 +: 32] == {26'd0, place};
            assign right_lane[k] = out_empty || m_tkeep[k] == (left >= k);
        end
        if (QUEUE == 1) begin : marks
            always @* if (!rst && rvalid) begin
                right_first: assert (sum_first == !come_reg);
                right_low: assert (sum_keep[0] == ({beat, 1'b0} >= come_first && {beat, 1'b0} <= come_last));
                right_high: assert (sum_keep[1] == ({beat, 1'b1} >= come_first && {beat, 1'b1} <= come_last));
            end
        end
    endgenerate

    always @* if (!rst) begin
        right_element: assert (!m_tvalid || &right_value);
        right_keep: assert (!m_tvalid || &right_lane);
        wanted: assert (!m_tvalid || transfers != 0);
        right_end: assert (!m_tvalid || m_tlast == (out_empty || left < W));
        empty_end: assert (!m_tvalid || !out_empty || m_tkeep == 0);
        right_beats: assert (!arvalid || (asked_for != 0 && araddr == ask_next && ask_next + {4'd0, arlen} <= ask_last[5:1]));
        has_shape: assert (!arvalid || !(araddr[0] && arlen));
        is_busy: assert (busy || transfers == 0);
        long_transfer: cover (give && m_tlast && next - out_first >= 6'd4 && out_first[0]);
    end

    wire stuck = transfers != 0 && !m_tvalid && !arvalid && bursts == 0;
    patience #(.MOST(4)) moving (.clk(clk), .rst(rst), .waiting(stuck));
    patience #(.MOST(6)) taking (.clk(clk), .rst(rst), .waiting(go && !cmd_ready && transfers == 0));

endmodule

`default_nettype wire
