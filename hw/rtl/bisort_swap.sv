// Compares two tuples by {key, id} and puts out the smaller and the larger, one cycle later: a step of bisort_merger's sorting stages.
//
// A place that is `none` holds no tuple and is above every tuple.

`default_nettype none

module bisort_swap #(
    // Bits of a key: 1 or more.
    parameter KEY_W = 64,
    // Bits of an id: 1 or more.
    parameter ID_W = 32
) (
    input  wire             clk,
    input  wire             enable,

    input  wire [KEY_W-1:0] a_key,
    input  wire [ID_W-1:0]  a_id,
    input  wire             a_none,
    input  wire [KEY_W-1:0] b_key,
    input  wire [ID_W-1:0]  b_id,
    input  wire             b_none,

    output wire [KEY_W-1:0] low_key,
    output wire [ID_W-1:0]  low_id,
    output wire             low_none,
    output wire [KEY_W-1:0] high_key,
    output wire [ID_W-1:0]  high_id,
    output wire             high_none
);

    param_check #(.OK(KEY_W >= 1 && ID_W >= 1), .MESSAGE("KEY_W and ID_W must be at least 1")) width_check ();

    reg [KEY_W-1:0] low_key_reg, high_key_reg;
    reg [ID_W-1:0] low_id_reg, high_id_reg;
    reg low_none_reg, high_none_reg;

    wire a_first = a_key < b_key || (a_key == b_key && a_id <= b_id);
    wire a_low = b_none || (!a_none && a_first);

    assign low_key = low_key_reg;
    assign low_id = low_id_reg;
    assign low_none = low_none_reg;
    assign high_key = high_key_reg;
    assign high_id = high_id_reg;
    assign high_none = high_none_reg;

    always @(posedge clk) begin
        if (enable) begin
            low_key_reg <= a_low ? a_key : b_key;
            low_id_reg <= a_low ? a_id : b_id;
            low_none_reg <= a_none && b_none;
            high_key_reg <= a_low ? b_key : a_key;
            high_id_reg <= a_low ? b_id : a_id;
            high_none_reg <= a_none || b_none;
        end
    end

endmodule

`default_nettype wire
