# A ZCU104: Zynq UltraScale+ XCZU7EV. The design has no pins of its own: all ways lead through the processing system.
# Clocks come with the block design.
set_property BITSTREAM.GENERAL.COMPRESS TRUE [current_design]
