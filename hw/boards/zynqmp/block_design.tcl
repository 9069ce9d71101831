# The block design of Zynq UltraScale+ boards: processing system, engine, two SmartConnects, one clock and its reset. Needs Vivado.
#
# The engine's registers are behind M_AXI_HPM0_FPD; its memory port is connected to S_AXI_HP0_FPD, so the engine itself
# reads and writes the buffers that PYNQ allocates. The interrupt is connected to the processing system; the driver polls registers.

namespace eval millrace {
    variable engine bisort_engine_0
    variable ps zynq_ultra_ps_e_0
}

# settings: a dictionary with board_part, megahertz, base, and parameters (of bisort_engine_bd).
proc millrace::block_design {settings} {
    variable engine
    variable ps
    set clock ${ps}/pl_clk0

    create_bd_design millrace
    create_bd_cell -type ip -vlnv xilinx.com:ip:zynq_ultra_ps_e $ps
    apply_bd_automation -rule xilinx.com:bd_rule:zynq_ultra_ps_e -config {apply_board_preset 1} [get_bd_cells $ps]
    set_property -dict [list \
        CONFIG.PSU__USE__M_AXI_GP0 1 \
        CONFIG.PSU__USE__M_AXI_GP1 0 \
        CONFIG.PSU__USE__M_AXI_GP2 0 \
        CONFIG.PSU__USE__S_AXI_GP2 1 \
        CONFIG.PSU__SAXIGP2__DATA_WIDTH 128 \
        CONFIG.PSU__USE__IRQ0 1 \
        CONFIG.PSU__FPGA_PL0_ENABLE 1 \
        CONFIG.PSU__CRL_APB__PL0_REF_CTRL__FREQMHZ [dict get $settings megahertz] \
    ] [get_bd_cells $ps]

    create_bd_cell -type module -reference bisort_engine_bd $engine
    dict for {name value} [dict get $settings parameters] {
        set_property CONFIG.$name $value [get_bd_cells $engine]
    }

    create_bd_cell -type ip -vlnv xilinx.com:ip:proc_sys_reset reset_0
    create_bd_cell -type ip -vlnv xilinx.com:ip:smartconnect registers_0
    create_bd_cell -type ip -vlnv xilinx.com:ip:smartconnect memory_0
    foreach cell {registers_0 memory_0} {
        set_property -dict {CONFIG.NUM_SI 1 CONFIG.NUM_MI 1} [get_bd_cells $cell]
    }

    foreach pin [list \
        ${ps}/maxihpm0_fpd_aclk ${ps}/saxihp0_fpd_aclk ${engine}/clk \
        reset_0/slowest_sync_clk registers_0/aclk memory_0/aclk \
    ] {
        connect_bd_net [get_bd_pins $clock] [get_bd_pins $pin]
    }
    connect_bd_net [get_bd_pins ${ps}/pl_resetn0] [get_bd_pins reset_0/ext_reset_in]
    connect_bd_net [get_bd_pins reset_0/peripheral_reset] [get_bd_pins ${engine}/rst]
    foreach cell {registers_0 memory_0} {
        connect_bd_net [get_bd_pins reset_0/peripheral_aresetn] [get_bd_pins ${cell}/aresetn]
    }
    connect_bd_net [get_bd_pins ${engine}/irq] [get_bd_pins ${ps}/pl_ps_irq0]

    connect_bd_intf_net [get_bd_intf_pins ${ps}/M_AXI_HPM0_FPD] [get_bd_intf_pins registers_0/S00_AXI]
    connect_bd_intf_net [get_bd_intf_pins registers_0/M00_AXI] [get_bd_intf_pins ${engine}/s_axil]
    connect_bd_intf_net [get_bd_intf_pins ${engine}/m_axi] [get_bd_intf_pins memory_0/S00_AXI]
    connect_bd_intf_net [get_bd_intf_pins memory_0/M00_AXI] [get_bd_intf_pins ${ps}/S_AXI_HP0_FPD]

    assign_bd_address
    set_property offset [dict get $settings base] [get_bd_addr_segs ${ps}/Data/SEG_${engine}_reg0]
    validate_bd_design
    save_bd_design
}
