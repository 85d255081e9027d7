# frozen_string_literal: true

# What makes servers print nothing, by their versions.
module Quiet
  # The second argument of Puma::Server.new: events write logs before Puma 6, nothing does after.
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
