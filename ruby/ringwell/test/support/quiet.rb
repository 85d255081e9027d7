# frozen_string_literal: true

# Makes servers of any version print nothing.
module Quiet
  # The second argument of Puma::Server.new. Before Puma 6, events write the logs.
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
