// bisort_merger where it stands in the engine, between FIFOs, with few pins: what nextpnr places to find the merger's clock.
//
// Beats come in bit by bit and go out bit by bit, because no package has pins for whole ones; registers stand between the pins and the
// FIFOs, so that every path that counts runs from register to register.

`default_nettype none

module merger_context #(
    // As in bisort_merger.
    parameter KEY_W = 32,
    parameter ID_W = 32,
    parameter W = 1,
    // Beats of the FIFOs at either end.
    parameter DEPTH = 16
) (
    input  wire       clk,
    input  wire       rst,
    input  wire [1:0] serial_in,
    input  wire [1:0] push,
    input  wire       pull,
    output wire       serial_out,
    output wire [1:0] room
);

    localparam BEAT_W = W * (KEY_W + ID_W) + W + 1;

    wire [2*BEAT_W-1:0] in_beat;
    wire [1:0] in_valid, in_ready;
    wire [BEAT_W-1:0] merged, out_beat;
    wire merged_valid, merged_ready, out_valid;
    reg [BEAT_W-1:0] out_reg;
    reg rst_reg, pull_reg;

    assign serial_out = out_reg[0];

    genvar k;
    generate
        for (k = 0; k < 2; k = k + 1) begin : side
            reg [BEAT_W-1:0] in_reg;
            reg push_reg, room_reg;
            wire fifo_ready;

            assign room[k] = room_reg;

            always @(posedge clk) begin
                in_reg <= {in_reg[BEAT_W-2:0], serial_in[k]};
                push_reg <= push[k];
                room_reg <= fifo_ready;
            end

            /* verilator lint_off PINCONNECTEMPTY */
            stream_fifo #(.WIDTH(BEAT_W), .DEPTH(DEPTH)) fifo (
                .clk(clk),
                .rst(rst_reg),
                .s_axis_tdata(in_reg),
                .s_axis_tvalid(push_reg),
                .s_axis_tready(fifo_ready),
                .m_axis_tdata(in_beat[k*BEAT_W +: BEAT_W]),
                .m_axis_tvalid(in_valid[k]),
                .m_axis_tready(in_ready[k]),
                .count()
            );
            /* verilator lint_on PINCONNECTEMPTY */
        end
    endgenerate

    bisort_merger #(
        .KEY_W(KEY_W),
        .ID_W(ID_W),
        .W(W)
    ) merger (
        .clk(clk),
        .rst(rst_reg),
        .s_axis_a_tdata(in_beat[W+1 +: BEAT_W-W-1]),
        .s_axis_a_tkeep(in_beat[1 +: W]),
        .s_axis_a_tlast(in_beat[0]),
        .s_axis_a_tvalid(in_valid[0]),
        .s_axis_a_tready(in_ready[0]),
        .s_axis_b_tdata(in_beat[BEAT_W+W+1 +: BEAT_W-W-1]),
        .s_axis_b_tkeep(in_beat[BEAT_W+1 +: W]),
        .s_axis_b_tlast(in_beat[BEAT_W]),
        .s_axis_b_tvalid(in_valid[1]),
        .s_axis_b_tready(in_ready[1]),
        .m_axis_tdata(merged[W+1 +: BEAT_W-W-1]),
        .m_axis_tkeep(merged[1 +: W]),
        .m_axis_tlast(merged[0]),
        .m_axis_tvalid(merged_valid),
        .m_axis_tready(merged_ready)
    );

    /* verilator lint_off PINCONNECTEMPTY */
    stream_fifo #(.WIDTH(BEAT_W), .DEPTH(DEPTH)) fifo (
        .clk(clk),
        .rst(rst_reg),
        .s_axis_tdata(merged),
        .s_axis_tvalid(merged_valid),
        .s_axis_tready(merged_ready),
        .m_axis_tdata(out_beat),
        .m_axis_tvalid(out_valid),
        .m_axis_tready(pull_reg),
        .count()
    );
    /* verilator lint_on PINCONNECTEMPTY */

    always @(posedge clk) begin
        rst_reg <= rst;
        pull_reg <= pull;
        out_reg <= out_valid && pull_reg ? out_beat : {1'b0, out_reg[BEAT_W-1:1]};
    end

endmodule

`default_nettype wire
