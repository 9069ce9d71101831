// Turns AXI4-Lite into single register writes and reads.
//
// A write is done in the cycle after both its address and its data have come: `write` is high for one cycle. A read takes what
// `read_data` shows in the cycle after its address has come. One of each at a time; strobes are not looked at, so registers are
// written whole. Every address is answered with OKAY.

`default_nettype none

module axi_lite_port #(
    // Bits of an address: 3 to 32.
    parameter ADDR_W = 12
) (
    input  wire              clk,
    input  wire              rst,

    input  wire [ADDR_W-1:0] s_axil_awaddr,
    input  wire              s_axil_awvalid,
    output wire              s_axil_awready,
    input  wire [31:0]       s_axil_wdata,
    input  wire              s_axil_wvalid,
    output wire              s_axil_wready,
    output wire [1:0]        s_axil_bresp,
    output wire              s_axil_bvalid,
    input  wire              s_axil_bready,
    input  wire [ADDR_W-1:0] s_axil_araddr,
    input  wire              s_axil_arvalid,
    output wire              s_axil_arready,
    output wire [31:0]       s_axil_rdata,
    output wire [1:0]        s_axil_rresp,
    output wire              s_axil_rvalid,
    input  wire              s_axil_rready,

    output wire              write,
    output wire [ADDR_W-1:0] write_addr,
    output wire [31:0]       write_data,
    // A read takes three cycles: the address stands, then `read` comes with it, then its data.
    output wire [ADDR_W-1:0] read_addr,
    output wire              read_pending,
    output wire              read,
    input  wire [31:0]       read_data
);

    param_check #(.OK(ADDR_W >= 3 && ADDR_W <= 32), .MESSAGE("ADDR_W must be 3 to 32")) addr_check ();

    reg [ADDR_W-1:0] aw_reg, ar_reg;
    reg [31:0] w_reg, r_reg;
    reg aw_valid_reg, w_valid_reg, b_valid_reg, ar_valid_reg, r_valid_reg;

    wire done = aw_valid_reg && w_valid_reg && !b_valid_reg;
    reg [1:0] read_step_reg;
    wire fetched = read_step_reg[1];

    assign s_axil_awready = !aw_valid_reg;
    assign s_axil_wready = !w_valid_reg;
    assign s_axil_bresp = 2'b00;
    assign s_axil_bvalid = b_valid_reg;
    assign s_axil_arready = !ar_valid_reg;
    assign s_axil_rdata = r_reg;
    assign s_axil_rresp = 2'b00;
    assign s_axil_rvalid = r_valid_reg;
    assign write = done;
    assign write_addr = aw_reg;
    assign write_data = w_reg;
    assign read_addr = ar_reg;
    assign read_pending = ar_valid_reg;
    assign read = read_step_reg[0];

    always @(posedge clk) begin
        if (s_axil_awvalid && s_axil_awready) begin
            aw_reg <= s_axil_awaddr;
            aw_valid_reg <= 1'b1;
        end
        if (s_axil_wvalid && s_axil_wready) begin
            w_reg <= s_axil_wdata;
            w_valid_reg <= 1'b1;
        end
        if (s_axil_bready) b_valid_reg <= 1'b0;
        if (done) begin
            aw_valid_reg <= 1'b0;
            w_valid_reg <= 1'b0;
            b_valid_reg <= 1'b1;
        end
        if (s_axil_arvalid && s_axil_arready) begin
            ar_reg <= s_axil_araddr;
            ar_valid_reg <= 1'b1;
        end
        if (s_axil_rready) r_valid_reg <= 1'b0;
        read_step_reg <= {read_step_reg[0], ar_valid_reg && !r_valid_reg && read_step_reg == 2'd0};
        if (fetched) begin
            ar_valid_reg <= 1'b0;
            r_reg <= read_data;
            r_valid_reg <= 1'b1;
        end
        if (rst) begin
            aw_valid_reg <= 1'b0;
            w_valid_reg <= 1'b0;
            b_valid_reg <= 1'b0;
            ar_valid_reg <= 1'b0;
            r_valid_reg <= 1'b0;
            read_step_reg <= 2'd0;
        end
    end

endmodule

`default_nettype wire
