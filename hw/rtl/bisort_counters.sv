// Counters of events, their totals in one memory: each is counted in a few bits of its own, which are carried to its total in turn.
//
// Every cycle one counter is visited: what it has gathered is added to its total and forgotten. A counter that is asked for is visited
// out of turn, so what is shown is exact. Totals wrap at 32 bits.

`default_nettype none

module bisort_counters #(
    // Counters: 2 to 256.
    parameter COUNTERS = 32,
    // Bits of what is counted per cycle and counter: 1 to 4.
    parameter STEP_W = 1,
    // Bits of a counter's number.
    localparam NUMBER_W = $clog2(COUNTERS)
) (
    input  wire                       clk,
    input  wire                       rst,

    input  wire [COUNTERS*STEP_W-1:0] steps,

    // Hold `pause` for a cycle, then `ask` with it; the total comes with the next cycle. No more than every other cycle is spent so.
    input  wire                       pause,
    input  wire                       ask,
    input  wire [NUMBER_W-1:0]        asked,
    output wire [31:0]                total
);

    // Enough for a round in which every other cycle is taken away; a step is a power of two at most.
    localparam PART_W = $clog2((2 << (STEP_W - 1)) * (COUNTERS + 2) + 1);
    localparam [31:0] LAST_NUMBER = COUNTERS - 1;
    localparam [NUMBER_W-1:0] LAST = LAST_NUMBER[NUMBER_W-1:0];

    param_check #(.OK(COUNTERS >= 2 && COUNTERS <= 256), .MESSAGE("COUNTERS must be 2 to 256")) counters_check ();
    param_check #(.OK(STEP_W >= 1 && STEP_W <= 4), .MESSAGE("STEP_W must be 1 to 4")) step_check ();

    reg [31:0] totals [0:COUNTERS-1];
    reg [NUMBER_W-1:0] turn_reg, number_reg;
    reg [31:0] total_reg;
    reg [PART_W-1:0] part_reg;
    reg visited_reg;
    // Totals of the first round begin at zero, whatever is in the memory.
    reg first_reg, fresh_reg;

    wire visit = ask || !pause;
    wire [NUMBER_W-1:0] number = pause ? asked : turn_reg;
    wire [COUNTERS*PART_W-1:0] parts;

    assign total = (fresh_reg ? 32'd0 : total_reg) + {{(32-PART_W){1'b0}}, part_reg};

    genvar k;
    generate
        for (k = 0; k < COUNTERS; k = k + 1) begin : counter
            localparam [NUMBER_W-1:0] HERE = k;
            reg [PART_W-1:0] gathered_reg;
            wire [STEP_W-1:0] step = steps[k*STEP_W +: STEP_W];

            assign parts[k*PART_W +: PART_W] = gathered_reg;
            always @(posedge clk) begin
                if (visit && number == HERE) gathered_reg <= {{(PART_W-STEP_W){1'b0}}, step};
                else if (|step) gathered_reg <= gathered_reg + {{(PART_W-STEP_W){1'b0}}, step};
                if (rst) gathered_reg <= 0;
            end
        end
    endgenerate

    always @(posedge clk) begin
        if (visit) total_reg <= totals[number];
        if (visited_reg) totals[number_reg] <= total;
    end

    always @(posedge clk) begin
        part_reg <= parts[number*PART_W +: PART_W];
        number_reg <= number;
        fresh_reg <= first_reg;
        visited_reg <= visit && !rst;
        if (!pause) begin
            turn_reg <= turn_reg == LAST ? {NUMBER_W{1'b0}} : turn_reg + 1'b1;
            if (turn_reg == LAST) first_reg <= 1'b0;
        end
        if (rst) begin
            turn_reg <= 0;
            first_reg <= 1'b1;
        end
    end

endmodule

`default_nettype wire
