// Chooses one of several requests in turn: the first after the one that was served last. Combinational.

`default_nettype none

module round_robin #(
    // Requests: 1 to 2**NUMBER_W.
    parameter PORTS = 4,
    // Bits of a request's number.
    parameter NUMBER_W = 2
) (
    input  wire [PORTS-1:0]    request,
    // Number of the request that was served last.
    input  wire [NUMBER_W-1:0] last,
    // One bit, or none where nothing is requested.
    output wire [PORTS-1:0]    chosen,
    output wire [NUMBER_W-1:0] number
);

    param_check #(.OK(PORTS >= 1 && PORTS <= (1 << NUMBER_W)), .MESSAGE("PORTS must be 1 to 2**NUMBER_W")) ports_check ();

    wire [PORTS-1:0] after;
    wire [PORTS-1:0] pool = |after ? after : request;
    reg [NUMBER_W-1:0] found;
    integer i;

    assign after = request & ({PORTS{1'b1}} << last << 1);
    assign chosen = pool & (~pool + 1'b1);
    assign number = found;

    always @* begin
        found = {NUMBER_W{1'b0}};
        for (i = 0; i < PORTS; i = i + 1) begin
            if (chosen[i]) found = found | i[NUMBER_W-1:0];
        end
    end

endmodule

`default_nettype wire
