// The rules of every stream, as assumptions about inputs (ASSUME = 1) or assertions about outputs (ASSUME = 0).
//
// stable: an offered beat stays unchanged until it is accepted. shape: kept lanes begin at lane 0, all beats but the last are full, an
// empty beat is a separate stream. order (ASCENDING = 1): the elements of a stream ascend.

`default_nettype none

module stream_rules #(
    // Bits of an element, elements of a beat.
    parameter WIDTH = 1,
    parameter W = 1,
    parameter ASCENDING = 1,
    parameter ASSUME = 0
) (
    input wire               clk,
    input wire               rst,
    input wire [W*WIDTH-1:0] tdata,
    input wire [W-1:0]       tkeep,
    input wire               tlast,
    input wire               tvalid,
    input wire               tready
);

    reg stalled_reg, begun_reg, held_last_reg;
    reg [W*WIDTH-1:0] held_data_reg;
    reg [W-1:0] held_keep_reg;
    reg [WIDTH-1:0] top_reg;    // the last element that passed

    wire same = {held_data_reg, held_keep_reg, held_last_reg} == {tdata, tkeep, tlast};
    wire stable = !stalled_reg || (tvalid && same);
    wire shape = !tvalid || ((tkeep & (tkeep + 1'b1)) == 0 && (tlast || &tkeep) && (tkeep[0] || (tlast && !begun_reg)));

    wire [W-1:0] rising;
    genvar i;
    generate
        for (i = 0; i < W; i = i + 1) begin : lane
            wire [WIDTH-1:0] before;
            wire compared;
            if (i == 0) begin : first
                assign before = top_reg;
                assign compared = begun_reg;
            end else begin : other
                assign before = tdata[(i-1)*WIDTH +: WIDTH];
                assign compared = 1'b1;
            end
            assign rising[i] = !tkeep[i] || !compared || before <= tdata[i*WIDTH +: WIDTH];
        end
    endgenerate
    wire order = !tvalid || !ASCENDING || &rising;

    always @(posedge clk) begin
        stalled_reg <= tvalid && !tready;
        held_data_reg <= tdata;
        held_keep_reg <= tkeep;
        held_last_reg <= tlast;
        if (tvalid && tready) begin
            begun_reg <= !tlast;
            top_reg <= tdata[(W-1)*WIDTH +: WIDTH];
        end
        if (rst) begin
            stalled_reg <= 1'b0;
            begun_reg <= 1'b0;
        end
    end

    generate
        if (ASSUME) begin : given
            always @* if (!rst) assume (stable && shape && order);
        end else begin : shown
            always @* if (!rst) begin
                is_stable: assert (stable);
                has_shape: assert (shape);
                is_sorted: assert (order);
            end
        end
    endgenerate

endmodule

`default_nettype wire
