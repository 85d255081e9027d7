# frozen_string_literal: true

# Makes servers print nothing, depending on their version.
module Quiet
  # The second argument of Puma::Server.new: before Puma 6, events write logs; later nothing does.
  def self.puma
    require "puma"
    require "puma/events"
    return Puma::Events.null if Puma::Events.respond_to?(:null)

    require "puma/log_writer"
    Puma::Events.new
  end

  # Options of Puma::Server.new.
  def self.puma_options
    Puma::Events.respond_to?(:null) ? {} : {log_writer: Puma::LogWriter.null}
  end
end
