// A queue of a harness: items in order, the oldest at `head`. The harness never pushes more than DEPTH items.

`default_nettype none

module waiting_line #(
    parameter WIDTH = 1,
    // Items: up to 8.
    parameter DEPTH = 8
) (
    input  wire             clk,
    input  wire             rst,
    input  wire [WIDTH-1:0] item,
    input  wire             push,
    input  wire             pop,
    output wire [WIDTH-1:0] head,
    output wire [3:0]       count
);

    reg [DEPTH*WIDTH-1:0] items_reg, items;
    reg [3:0] count_reg;

    assign head = items_reg[WIDTH-1:0];
    assign count = count_reg;

    always @* begin
        items = pop ? items_reg >> WIDTH : items_reg;
        if (push) items[(count_reg - {3'd0, pop})*WIDTH +: WIDTH] = item;
    end

    always @(posedge clk) begin
        items_reg <= items;
        count_reg <= count_reg + {3'd0, push} - {3'd0, pop};
        if (rst) count_reg <= 4'd0;
    end

endmodule

`default_nettype wire
